"""Draws the picture of each move that has one, into picture.svg in its stage's folder.

All sizes come from the sources, so that a picture shows what its code does. A function draws the
stage of its name: tiles() that of NN.M_tiles, if there is one. A second run changes nothing.
"""

import re
from html import escape
from itertools import groupby, pairwise

from harness import ladders

LADDER = ladders.find_ladder("")
HIDDEN, BATCH = LADDER.toml["step"]["hidden"], LADDER.toml["step"]["batch"]

# A picture is as wide as a telephone. Text of 12 is then 12 pixels high. What is read has stripes,
# what is summed is dark, and a thick line goes around what belongs together: it needs no colours.
WIDTH = 360
LOOKS = {False: "rest", True: "read"}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: bold } .small { font-size: 11.5px } .in_sum { fill: #fff }
.in_read { stroke: #fff; stroke-width: 3px; paint-order: stroke }
rect { stroke: #6e7781; stroke-width: .6 }
.page { fill: #fff; stroke: none } .rest { fill: #fff } .pale { fill: #dbe4ee }
.mid { fill: #a9bfd6 } .deep { fill: #7d9cbb } .read { fill: url(#stripes) }
.sum { fill: #1d4e7a }
.round { fill: none; stroke: #1f2328; stroke-width: 1.8 }
path { fill: none; stroke: #1f2328; stroke-width: 1.5; marker-end: url(#head) }
.line, .thin, .cells, marker path { marker-end: none } .thin { stroke-width: .7 }
.cells { stroke: #6e7781; stroke-width: .6 }
marker path { fill: #1f2328; stroke: none }
"""
HEAD = f"""<svg xmlns="http://www.w3.org/2000/svg" width="540" viewBox="0 0 {WIDTH} %d" role="img">
<title>%s</title>
<style>{STYLE}</style>
<defs>
<pattern id="stripes" width="4" height="4" patternUnits="userSpaceOnUse">
<path class="line" d="M0 0H4V4H0z" style="fill: #fbe8c3; stroke: none"/>
<path class="line" d="M0 4L4 0M-1 1L1 -1M3 5L5 3" style="stroke: #8a5a00; stroke-width: 1"/>
</pattern>
<marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="5" markerHeight="5"
 orient="auto"><path d="M0 0L6 3L0 6z"/></marker>
</defs>
"""


def constant(stage, name):
    """The value of a constant in a stage's source. Where there are several, the first is meant:
    that of the widest vectors."""
    files = [stage.source, *(ladders.ROOT / path for path in ("common/data.h", "common/program.c"))]
    for file in files:
        found = re.search(rf"\b{name} = (\d+)\b", file.read_text(encoding="utf-8"))
        if found:
            return int(found[1])
    return ladders.fail(f"{stage.source.relative_to(ladders.ROOT)}: found no number for {name}, "
                        f"expected '{name} = ...'")


def number(stage):
    return stage.name.split("_")[0]


class Picture:
    """The parts of a drawing. x and y are the left upper corner, in pixels."""

    def __init__(self, title):
        self.title, self.parts, self.height = title, [], 0
        self.head(title)

    def head(self, text):
        """A bold line below all else. Returns where the next part may begin."""
        self.text(10, self.height + 18, text, "title")
        return self.height

    def notes(self, *lines):
        """Lines below all else."""
        for line in lines:
            self.text(10, self.height + 14, line)
            self.height -= 8
        self.height += 12

    def text(self, x, y, text, style="", anchor="start"):
        self.parts.append(f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">'
                          f'{escape(text)}</text>')
        self.height = max(self.height, y + 10)

    def rect(self, x, y, width, height, style="rest", text=""):
        self.parts.append(f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" '
                          f'height="{height:g}"/>')
        if text:
            self.text(x + width / 2, y + height / 2 + 4, text, f"small in_{style}", "middle")
        self.height = max(self.height, y + height + 4)

    def grid(self, x, y, rows, columns, width, height, style):
        """Cells. A function of row and column gives a cell's style."""
        for row in range(rows):
            for look, cells in groupby(range(columns), lambda column, row=row: style(row, column)):
                first, *others = cells
                self.rect(x + first * width, y + row * height, (1 + len(others)) * width, height,
                          look)
        lines = "".join(f"M{x + column * width:g} {y:g}v{rows * height:g}"
                        for column in range(1, columns))
        self.parts.append(f'<path class="cells" d="{lines}"/>')

    def arrow(self, x, y, to_x, to_y, style=""):
        self.parts.append(f'<path class="{style}" d="M{x:g} {y:g}L{to_x:g} {to_y:g}"/>')

    def save(self, path):
        page = f'<rect class="page" width="{WIDTH}" height="{self.height:g}" rx="6"/>'
        path.write_text("\n".join([HEAD % (self.height, escape(self.title)) + page, *self.parts,
                                   "</svg>\n"]), encoding="utf-8")


def loop_order(stage):
    line, rows = constant(stage, "ALIGNMENT") // 4, 6
    picture = Picture(f"{number(stage.before)}: the inner loop runs down, over the pixels k")
    for along in (False, True):
        y = picture.head(f"{number(stage)}: the inner loop runs along, over the units h") \
            if along else picture.height
        read = (lambda row, _: row == 2) if along else (lambda _, column: column == 4)
        picture.text(26, y + 10, "x[s]", "", "middle")
        picture.text(60, y + 10, f"W1: each row shown is a cache line of {line} floats")
        picture.grid(17, y + 16, rows, 1, 18, 17, lambda row, _, read=read: LOOKS[read(row, 4)])
        picture.grid(60, y + 16, rows, line, 18, 17, lambda *at, read=read: LOOKS[read(*at)])
        picture.arrow(*((64, y + 58.5, 344, y + 58.5) if along else (141, y + 20, 141, y + 114)))
        picture.text(26, y + 140, "a[s]", "", "middle")
        picture.grid(60, y + 127, 1, line, 18, 17,
                     lambda _, column, read=read: "sum" if read(2, column) else "rest")
        picture.notes(*([f"{line} sums, none waits for another: one vector.",
                         f"All {line} numbers of a cache line are used at once.", "",
                         "Stripes: what the inner loop reads. Dark: where it adds."] if along else
                        ["One sum. Each addition waits for the one before.",
                         "Each number of W1 is in another cache line."]))
    return picture


def register_tile(stage):
    rows, columns = constant(stage, "TILE_ROWS"), constant(stage, "TILE_COLUMNS")
    lanes, pixels = constant(stage, "VECTOR_BYTES") // 4, constant(stage, "PIXELS")
    picture = Picture(f"For a pixel k: {rows + columns} loads, {rows * columns} multiply-adds")
    picture.text(76, 40, f"row k of W1: {columns} vectors of {lanes} hidden units")
    picture.text(70, 60, "x[s][k]", "", "end")
    for row in range(rows):
        picture.text(48, 86 + row * 20, f"s + {row}", "small", "end")
        picture.rect(54, 74 + row * 20, 16, 16, "read")
    width = 274 / columns
    for x in (78 + column * (width + 4) for column in range(columns)):
        for y, look in ((48, "read"), *((74 + row * 20, "sum") for row in range(rows))):
            picture.grid(x, y, 1, lanes, (width - 4) / lanes, 16, lambda *_, look=look: look)
            picture.rect(x, y, width - 4, 16, "round")
    picture.notes("Stripes: loaded for this k.",
                  f"Dark: {rows} × {columns} vectors of sums. They stay in registers",
                  f"for all {pixels} pixels, and are stored once, at the end.",
                  "A single sum would need 2 loads for 1 multiply-add.")
    return picture


def backward_tile(stage):
    lanes, columns = constant(stage, "VECTOR_BYTES") // 4, constant(stage, "TILE_COLUMNS")
    pixels, vectors = constant(stage, "PIXELS"), HIDDEN // lanes
    picture = Picture("Rows: the next row is a jump away")
    for packed in (False, True):
        y = picture.head("Panels: the next row is the next place") if packed else picture.height
        for column, v in enumerate((0, 1, 2, 3, None, vectors - 1)):
            x = 57 + column * 50
            picture.text(x + 24, y + 10, "…" if v is None else f"v = {v}", "small", "middle")
            for row, k in enumerate((0, 1, 2, None, pixels - 1)):
                if v == 0:
                    picture.text(52, y + 29 + row * 20, "…" if k is None else f"k = {k}", "small",
                                 "end")
                gap = k is None or v is None
                place = "…" if gap else str(v * pixels + k if packed else k * vectors + v)
                picture.rect(x, y + 16 + row * 20, 48, 18, LOOKS[not gap and v < columns], place)
        picture.notes(*([f"The tile reads {columns} panels of {pixels} vectors, each from",
                         "end to end.", "",
                         f"A cell is a vector of {lanes} floats, and its place in memory.",
                         "Stripes: what one tile reads, down from k = 0."] if packed else
                        [f"The tile reads places 0, 1, then {vectors}, {vectors + 1}: it jumps",
                         f"{HIDDEN * 4} bytes for each k."]))
    return picture


def owned_slices(stage):
    threads, vectors = 4, HIDDEN // (constant(stage, "VECTOR_BYTES") // 4)
    looks, width = ["rest", "pale", "mid", "deep"], 312 / vectors
    bounds = [vectors * thread // threads for thread in range(threads + 1)]
    owner = [thread for thread in range(threads) for _ in range(*bounds[thread:thread + 2])]
    picture = Picture(f"{vectors} vectors of hidden units, {threads} threads")
    for name, y in (("x", 43), ("W1", 99), ("a, da", 135), ("W2", 157)):
        picture.text(36, y, name, "", "end")
    picture.rect(40, 30, 312, 18, "read", "all threads read all of x")
    for y, height in ((70, 50), (120, 22), (142, 22)):
        picture.grid(40, y, 1, vectors, width, height, lambda _, v: looks[owner[v]])
    for thread, (first, last) in enumerate(pairwise(bounds)):
        x, middle = 40 + first * width, 40 + (first + last) * width / 2
        picture.arrow(middle, 49, middle, 68)
        picture.rect(x, 70, (last - first) * width, 94, "round")
        picture.text(middle, 180, f"thread {thread}", "", "middle")
        picture.arrow(middle, 184, middle, 198)
        picture.rect(middle - 30, 200, 60, 18, looks[thread], "share")
        picture.arrow(middle, 220, 79, 250, "thin")
    picture.rect(49, 251, 60, 18, looks[0], "z, p, dz")
    picture.text(116, 264, "for all samples, by thread 0")
    picture.notes("Only its owner reads or writes a slice: it stays in",
                  "the caches of one core. All hidden units add to z.",
                  "So each thread writes the share of its own.")
    return picture


def one_barrier(stage):
    picture = Picture(f"{number(stage.before)}: two barriers a batch")
    for barriers in (2, 1):
        y = picture.height if barriers == 2 else \
            picture.head(f"{number(stage)}: one barrier a batch")
        for thread in range(4):
            picture.text(10, y + 18 + thread * 20, f"thread {thread}", "small")
            waits = barriers == 2 and thread > 0
            for x, width, look, text in (
                    (64, 106, "mid", "forward"), (244, 106, "pale", "backward"),
                    (174, 66, *(("rest", "wait") if waits else ("sum", "z, p, dz")))):
                picture.rect(x, y + 5 + thread * 20, width, 18, look, text)
        for x in (172, 242)[:barriers]:
            picture.arrow(x, y - 2, x, y + 90, "line")
        picture.notes(*(["All threads wait twice: until all shares are there,",
                         "and until thread 0 has dz."] if barriers == 2 else
                        ["Each thread computes the same dz, for itself.",
                         "It takes no longer than to wait for it.", "",
                         "Time runs to the right, not to scale. A vertical",
                         "line is a barrier."]))
    return picture


def mpi_lookahead(stage):
    looks = {"wait": "rest", "step": "pale", "x·W1": "mid", "x⁺·W1": "mid", "layer": "sum",
             "fix": "read"}
    widths = {"wait": 60, "step": 42, "x·W1": 42, "x⁺·W1": 42, "layer": 14, "fix": 12}
    picture = Picture(f"{number(LADDER.find(number(stage) + '.1').before)}: all wait for the sum")
    for parts, leaves in (
            ("x·W1 layer wait layer step x⁺·W1 layer wait", (124, 282)),
            ("layer step x⁺·W1 layer fix layer step x⁺·W1 layer fix", (82, 206))):
        y = picture.height
        for process in range(2):
            x, row = 68, y + 5 + process * 48
            picture.text(10, row + 13, f"process {process}", "small")
            for part in parts.split():
                picture.rect(x, row, widths[part], 18, looks[part],
                             "" if part in ("layer", "fix") else part)
                x += widths[part]
        for x in leaves:
            picture.arrow(x, y + 25, x + 58, y + 51)
            picture.arrow(x, y + 51, x + 58, y + 25)
        if "wait" in parts:
            picture.head(f"{number(stage)}: they compute while it travels")
    picture.notes("Arrows: the shares on their way. Dark: the second layer.",
                  f"Stripes: the correction of x⁺·W1. In {number(stage)}, the step is",
                  "that of the batch before.", "",
                  "Time runs to the right, not to scale.")
    return picture


def cuda_unified(stage):
    sector, lanes, cell, x = 8, 8, 16, 52  # a sector has 32 bytes
    picture = Picture(f"{number(stage.before)}: the lanes of a warp have neighbouring rows")
    for along in (False, True):
        y = picture.head(f"{number(stage)}: they have neighbouring columns") if along else (
            picture.height)
        rows = [2] if along else range(lanes)
        picture.text(10, y + 22, "W1" if along else "x")
        picture.grid(x, y + 8, 4 if along else lanes, 18, cell, cell,
                     lambda r, c, rows=rows, along=along:
                     LOOKS[False] if r not in rows or c >= sector else
                     "sum" if along or c == 3 else LOOKS[True])
        for row in rows:
            picture.rect(x, y + 8 + row * cell, sector * cell, cell, "round")
        picture.notes(*([f"{lanes} numbers in one sector: all of it is used."] if along else
                        [f"{lanes} numbers in {lanes} sectors of {sector} (a thick line).",
                         f"An {sector}th of what memory moves is used.", ""]))
    picture.notes("Dark: what a load wants. Stripes: what comes along.",
                  f"{lanes} of a warp's 32 lanes are shown.")
    return picture


def sample_lists(stage):
    samples, pixels, sample, pixel = 6, 12, 2, 7
    listed = {(s, k) for s in range(samples) for k in range(pixels) if (5 * s + 3 * k) % 7 < 2}
    picture = Picture(f"{samples} samples, {pixels} pixels: x, and what is not zero in it")
    picture.grid(76, 60, samples, pixels, 20, 18, lambda s, k: LOOKS[(s, k) in listed])
    picture.rect(76, 60 + sample * 18, pixels * 20, 18, "round")
    picture.rect(76 + pixel * 20, 60, 20, samples * 18, "round")
    picture.text(70, 73 + sample * 18, f"s = {sample}", "", "end")
    picture.text(86 + pixel * 20, 54, f"k = {pixel}", "", "middle")
    rows, columns = ([str(place[1 - axis]) for place in sorted(listed) if place[axis] == mine]
                     for axis, mine in ((0, sample), (1, pixel)))
    picture.notes(f"The list of sample {sample} names pixels {', '.join(rows)}. Its a",
                  f"is the sum of these rows of W1. {number(stage.before)} has the others:",
                  f"the list of pixel {pixel} names samples {', '.join(columns)}. Its row",
                  "of dW1 is the sum of these rows of da.")
    return picture


def forward_tiles(stage):
    tile, pixels = (constant(stage, name) for name in ("TILE", "PIXELS"))
    rounds, high, wide = -(-pixels // tile), BATCH // tile, HIDDEN // tile
    x, y, side, long, row, column, current = 10, 38, 8, 196 / rounds, 1, 3, 4
    right, below = x + 208, y + 208
    picture = Picture(f"One block: {tile} × {tile} sums of x·W1")
    picture.text(right + wide * side / 2, y - 5, "W1", "", "middle")
    picture.grid(right, y, rounds, wide, side, long,
                 lambda r, c: ("pale", "read")[r == current] if c == column else "rest")
    picture.grid(x, below, high, rounds, long, side,
                 lambda r, c: ("pale", "read")[c == current] if r == row else "rest")
    picture.grid(right, below, high, wide, side, side,
                 lambda r, c: "sum" if (r, c) == (row, column) else "rest")
    picture.rect(right + column * side, y + current * long, side, long, "round")
    picture.rect(x + current * long, below + row * side, long, side, "round")
    picture.text(x, below - 5, "x")
    picture.text(right + wide * side + 6, below + high * side / 2 + 4, "a")
    # The block's three tiles, larger. A small square stands for some numbers.
    picture.grid(140, y + 14, 8, 8, 5, 14, lambda _, c: "read" if c == 5 else "pale")
    picture.grid(20, y + 136, 8, 8, 14, 5, lambda r, _: "read" if r == 2 else "pale")
    picture.grid(140, y + 136, 8, 8, 5, 5, lambda r, c: "sum" if (r, c) == (2, 5) else "rest")
    picture.text(20, y + 108, "shared memory")
    picture.text(136, y + 194, "sums")
    middle = (current + .5) * long
    picture.arrow(x + middle, below + row * side, x + middle, y + 180)
    picture.arrow(right + column * side, y + middle, 184, y + middle)
    picture.notes(f"In each of {rounds} rounds along the pixels, the block fetches",
                  f"{tile} × {tile} numbers of x and W1 (stripes), once. Each is",
                  f"then read {tile} times: for its sum (dark), a thread reads",
                  "a row of x's tile and a column of W1's.")
    return picture


def register_blocking(stage):
    tile, rows, columns = (constant(stage, name) for name in ("TILE", "ROWS", "COLUMNS"))
    cell, x, y = 256 / tile, 60, 80
    row, column = tile // rows // 3, tile // columns // 2  # the thread's place in the block
    picture = Picture(f"A thread: {rows} × {columns} sums in registers")
    picture.text(x, 38, "row i of W1's tile")
    picture.grid(x, 44, 1, tile, cell, cell, lambda _, c: LOOKS[c // columns == column])
    picture.rect(x + column * columns * cell, 44, columns * cell, cell, "round")
    picture.text(10, 72, "column i of x's tile")
    picture.grid(x - 22, y, tile, 1, cell, cell, lambda r, _: LOOKS[r // rows == row])
    picture.rect(x - 22, y + row * rows * cell, cell, rows * cell, "round")
    picture.grid(x, y, tile, tile, cell, cell, lambda r, c: "sum" if
                 (r // rows, c // columns) == (row, column) else
                 ("rest", "pale")[(r // rows + c // columns) % 2])
    picture.notes(f"The block's {tile} × {tile} sums belong to "
                  f"{tile // columns * (tile // rows)} threads.",
                  f"For each i a thread reads {rows} + {columns} numbers from shared",
                  f"memory (stripes), for {rows * columns} multiply-adds (dark).",
                  "A thread with a single sum reads 2 for 1.")
    return picture


def split_sum(stage):
    count, tile, pixels = (constant(stage, name) for name in ("SLICES", "TILE", "PIXELS"))
    width = 340 / count
    picture = Picture(f"{count} blocks for a tile, each with {pixels // count} pixels")
    picture.text(10, 38, f"{tile} rows of x, all {pixels} pixels, in {count} slices", "small")
    picture.text(10, 84, f"{tile} columns of W1, in the same slices", "small")
    for z in range(count):
        x, middle = 10 + z * width, 10 + (z + 0.5) * width
        picture.rect(x, 44, width, 20, "read")
        picture.rect(x, 44, width, 20, "round")
        picture.rect(middle - 9, 90, 18, 40, "read")
        picture.arrow(middle, 132, middle, 146)
        picture.rect(x + 2, 148, width - 4, 26, "pale", f"block {z}"[-7 if width > 44 else -1:])
        picture.arrow(middle, 175, middle, 189)
        picture.rect(middle - 10, 191, 20, 20, "sum")
        picture.arrow(middle, 212, 180 + (z - count // 2) * 6, 249)
    picture.text(10, 236, "sums", "small")
    picture.rect(160, 251, 40, 26, "sum", "a")
    picture.text(206, 262, "another kernel adds", "small")
    picture.text(206, 275, "them up, in this order", "small")
    picture.notes(f"At hidden {tile}, batch {tile}, there is no other tile:",
                  "one block alone would leave most of the GPU idle.")
    return picture


def padding(stage):
    tile, rows, columns = (constant(stage, name) for name in ("TILE", "ROWS", "COLUMNS"))
    x, cell, banks, warp = 52, 9, 32, [r * rows for r in range(32 * columns // tile)]
    picture = Picture(f"{number(stage.before)}: rows of {tile} floats, in {banks} banks")
    for more in (0, 4):
        y = picture.head(f"{number(stage)}: rows of {tile + more} floats") if more else (
            picture.height)
        starts = [row * (tile + more) % banks for row in warp]
        for i, (row, start) in enumerate(zip(warp, starts)):
            picture.text(10, y + 16 + i * 14, f"row {row}", "small")
            picture.grid(x, y + 6 + i * 14, 1, banks, cell, 12,
                         lambda _, c, start=start: LOOKS[0 <= (c - start) % banks < 4])
        picture.notes(f"A warp reads four pixels of {len(warp)} rows at once.",
                      f"They lie in {4 * len({*starts})} banks: " + (
                          "no row waits." if more else "the rows take turns."), "")
    return picture


MOVES = {draw.__name__: draw for draw in (loop_order, register_tile, backward_tile, owned_slices,
                                          one_barrier, cuda_unified, forward_tiles, split_sum,
                                          register_blocking, padding, sample_lists, mpi_lookahead)}


def main():
    for found in LADDER.stages:
        draw = MOVES.get(found.name.partition("_")[2])
        if draw and found.name < "20":  # from there on, they are the reader's own
            draw(found).save(found.folder / "picture.svg")
