"""What a thread reads for the sums that it keeps in registers, and which banks a warp reads."""

from report.picture import LOOKS, Picture, constant


def draw(stage):
    tile, rows, columns = (constant(stage, name) for name in ("TILE", "ROWS", "COLUMNS"))
    cell, x, y = 256 / tile, 60, 80
    row, column = tile // rows // 3, tile // columns // 2  # the thread's place in the block
    picture = Picture(f"A thread: {rows} × {columns} sums in registers")
    picture.text(x, 38, "sample i of da's tile")
    picture.grid(x, 44, 1, tile, cell, cell, lambda _, c: LOOKS[c // columns == column])
    picture.rect(x + column * columns * cell, 44, columns * cell, cell, "round")
    picture.text(10, 72, "sample i of x's tile, turned")
    picture.grid(x - 22, y, tile, 1, cell, cell, lambda r, _: LOOKS[r // rows == row])
    picture.rect(x - 22, y + row * rows * cell, cell, rows * cell, "round")
    picture.grid(x, y, tile, tile, cell, cell, lambda r, c: "sum" if
                 (r // rows, c // columns) == (row, column) else
                 ("rest", "pale")[(r // rows + c // columns) % 2])
    picture.notes(f"The block's {tile} × {tile} sums belong to "
                  f"{tile // columns * (tile // rows)} threads.",
                  f"For each i a thread reads {rows} + {columns} numbers from shared",
                  f"memory (stripes), for {rows * columns} multiply-adds (blue).",
                  "A thread with a single sum reads 2 for 1.", "")
    across = tile // columns
    picture.head("Banks of da: other columns in each thread")
    draw_quarters(picture, [thread % across for thread in range(32)])
    picture.notes("A quarter fills all banks: four wavefronts.", "")
    picture.head("Here: threads in pairs have the same columns")
    draw_quarters(picture, [thread // 2 % across for thread in range(32)])
    picture.notes("Two quarters fill all banks: two wavefronts.")
    return picture


def draw_quarters(picture, wanted):
    """`wanted` has the four banks that each thread reads, of eight fours."""
    y = picture.height + 6
    for quarter in range(4):
        first = 8 * quarter
        banks = {*wanted[first:first + 8]}
        picture.text(10, y + 11, f"threads {first}–{first + 7}", "small")
        picture.grid(114, y, 1, 32, 7, 12, lambda _, bank, banks=banks: LOOKS[bank // 4 in banks])
        y += 15
