"""`make look`: a page that draws what a warp of a stage's kernels asks of memory, lane by lane,
beside the same of the stage before. This module draws each request, lanes.css says how it looks,
and lanes.html has the script that shows one at a time."""

import functools
import html
import json
import os
import re
import zlib
from base64 import b64encode
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from itertools import count
from pathlib import Path
from string import Template

from bench import ladders
from bench.base import ROOT, fail
from bench.options import GIVEN, given
from bench.stage import processors
from report import trace

WORDS, SECTOR = 32, 8  # words of a line, one in each bank, and of a sector
LINE = WORDS * trace.WORD  # bytes
UNITS = {"shared": "wavefront", "global": "sector"}
GUTTER, CELL = 70, 20  # pixels left of a drawing's 32 columns, and of each
PAGE, STYLE = Path(__file__).with_suffix(".html"), Path(__file__).with_suffix(".css")
STILL = Template("""<svg xmlns="http://www.w3.org/2000/svg" class="drawing" width="712"
 viewBox="0 0 712 $height" role="img">
<title>What a warp asks of memory in $kernel</title>
<style>
$style</style>
<rect class="page" width="712" height="$height" rx="6"/>
$parts
</svg>
""")
OUT = ROOT / "report/look"


def base(request):
    """What it does with which array, whatever the indices are: x, of x[i] and of
    *(const float4 *)(x + i)."""
    text = re.sub(r"\((const )?\w+ \*\)", "", request["place"].text)
    name = re.search(r"[A-Za-z_]\w*((\.|->)\w+)*", text)
    return name[0] if name else text, request["space"], request["kind"]


def keys(kernel):
    """{place: (its base, how many others of this base come before it)}, in the order of the trace.
    By this key, an expression is paired with one of the other stage's kernel, which may have other
    indices."""
    found, numbers = {}, {}
    for each in kernel["requests"]:
        place = each["place"], each["space"], each["kind"]
        if place not in found:
            number = numbers.setdefault(base(each), count())
            found[place] = (*base(each), next(number))
    return found


def rows(sources):
    """[mark, line before, line after, text] of the functions that requests come from, as a diff."""
    texts = [[text for _, text in source] for source in sources]
    found = []
    for tag, a, b, c, d in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
        if tag == "equal":
            found += [[" ", before[0], after[0], after[1]]
                      for before, after in zip(sources[0][a:b], sources[1][c:d])]
        else:
            found += [["-", number, 0, text] for number, text in sources[0][a:b]]
            found += [["+", 0, number, text] for number, text in sources[1][c:d]]
    return found


def source(stage, kernel):
    """(number, text) of the lines of the kernel and of the functions in it that touch memory."""
    text = stage.source.read_text(encoding="utf-8")
    lines = text.splitlines()
    places = [each["place"] for each in kernel["requests"]]
    names = dict.fromkeys(name for place in places for name in place.functions[::-1])
    found = []
    for name in names:
        # It may stand in the second line, behind __launch_bounds__, and there may be several.
        for begun in re.finditer(rf"^[^ /#}}\n](.*[^;{{\n]\n? *)?\b{name}\(", text, re.MULTILINE):
            start = text.count("\n", 0, begun.start())
            found += [(i + 1, lines[i]) for i in range(start, lines.index("}", start) + 1)]
    return sorted(set(found))


def units(n, unit):
    return f"{n:,} {unit}{'s' * (n != 1)}"


def about(request, cycles, cost, touches):
    """What a request moves beside what it wants, in words."""
    if request["space"] == "shared":
        return (f"In {units(cost, 'wavefront')} the banks could serve {cost * WORDS:,} words. "
                f"They serve {len({touch[1:] for touch in touches}):,}.")
    wanted = {at + i for at in request["lanes"] if at is not None for i in range(request["bytes"])}
    lacks = f" L1 lacks {units(request['misses'], 'sector')}." * (request["kind"] == "load")
    return (f"In {units(cycles, 'cycle')}, {cost * SECTOR * trace.WORD:,} bytes move. "
            f"{len(wanted):,} are wanted.{lacks}")


def drawn(request, drawings):
    """What the page knows of a request, without its site. Those of a loop share their drawing."""
    lanes = {lane: at for lane, at in enumerate(request["lanes"]) if at is not None}
    first = (min(lanes.values()) + request["start"]) // LINE * LINE - request["start"]
    touches = tuple((lane, (at - first) // trace.WORD + i, wavefront) for lane, at in lanes.items()
                    for i, wavefront in enumerate(request["by"][lane]))
    cost = request["wavefronts"] or request["sectors"]
    cycles = request["wavefronts"] or -(-cost // trace.SECTORS_A_CYCLE)
    drawing = drawings.setdefault(draw(touches, request["space"]), len(drawings))
    return {"lanes": request["lanes"], "bytes": request["bytes"], "interval": request["interval"],
            "cost": cost, "cycles": cycles, "about": about(request, cycles, cost, touches),
            "drawing": drawing, "first": first}


def side(stage, kernel, numbers, drawings):
    """What the page knows of one stage's kernel."""
    sites = keys(kernel)
    requests = [{"site": numbers[sites[each["place"], each["space"], each["kind"]]],
                 **drawn(each, drawings)} for each in kernel["requests"]]
    at = {numbers[key]: [place.line, place.start, place.end, place.text, place.calls]
          for (place, *_), key in sites.items()}
    sums = Counter()
    for each in requests:
        sums[each["site"]] += each["cycles"]
    # Of several that take most cycles, the first of the expression that takes most.
    *most, worst = max((each["cycles"], each["cost"], sums[each["site"]], -i)
                       for i, each in enumerate(requests))
    return {"name": stage.number, "title": stage.move, "block": kernel["block"], "at": at,
            "requests": requests, "most": most, "worst": -worst}


def pair(stages, name):
    """A kernel in the stages that have it: one, or the one before too."""
    sides = [(stage, trace.trace(stage)[name]) for stage in stages if name in trace.trace(stage)]
    found = dict.fromkeys(key for _, kernel in sides for key in keys(kernel).values())
    numbers, drawings = dict(zip(found, count())), {}
    sources = [source(stage, kernel) for stage, kernel in sides]
    shown = [side(*each, numbers, drawings) for each in sides]
    return {"kernel": name, "cycles": [kernel["cycles"] for _, kernel in sides], "sides": shown,
            "first": max(range(len(shown)), key=lambda number: shown[number]["most"]),
            "sites": [{"space": space, "kind": kind, "unit": UNITS[space]}
                      for _, space, kind, _ in found],
            "rows": rows([sources[0], sources[-1]]), "drawings": [*drawings]}


# ---- A drawing


def label(column, y, said, look):
    return f'<text x="{GUTTER + CELL * column:g}" y="{y:g}" class="{look}">{said}</text>'


def box(column, y, width, height, look, lanes=()):
    """Some of the 32 columns, which are lanes, words or banks, and the lanes that it is of."""
    of = f' data-lanes="{",".join(map(str, lanes))}"' if lanes else ""
    return (f'<rect x="{GUTTER + CELL * column + 0.5:g}" y="{y:g}" width="{CELL * width - 1:g}" '
            f'height="{height:g}" class="{look}"{of}/>')


def row(y, height):
    """A line of 32 words, or the banks."""
    return (f'{box(0, y, WORDS, height, "line")}<path class="ticks" stroke-width="{height}" '
            f'd="M{GUTTER - 0.5} {y + height / 2:g}h{CELL * WORDS}"/>')


def link(lane, columns, y):
    """From a lane to its words of a line."""
    x, left, right = (GUTTER + CELL * column for column in (lane + 0.5, min(columns), max(columns)))
    to = (left + right + CELL) / 2
    return (f'<path class="link" data-lanes="{lane}" d="M{x:g} 20C{x:g} 52 {to:g} {y - 32} {to:g} '
            f'{y}M{left + 2} {y}H{right + CELL - 2}"/>')


def gathered(found):
    """{key: values} of (key, value)s."""
    values = defaultdict(list)
    for key, value in found:
        values[key].append(value)
    return values


def memory(words, space):
    """(the top of each line of memory, the height of all, where they end, their parts): the lines
    that the words are in, each with its distance from the first, and the words' sectors."""
    lines = sorted({word // WORDS for word in words})
    high, every = (17, 1) if len(lines) <= 12 else (9, 2)  # of which one has room for its label
    tops = {line: 80 + i * (high + 2) for i, line in enumerate(lines)}
    bottom, parts = 92 + len(lines) * (high + 2), []
    for i, (line, y) in enumerate(tops.items()):
        parts.append(row(y, high))
        if i % every == 0:
            parts.append(label(-0.4, y + high - 3, line * LINE, "end soft at"))
    for word in range(0, WORDS, SECTOR):
        at, said = (0.5, f"bank {word}") if space == "shared" else (SECTOR / 2, "32 bytes")
        parts.append(label(word + at, bottom, said, "middle soft"))
    if space != "shared":
        parts += [box(word % WORDS, tops[word // WORDS], SECTOR, high, "sector")
                  for word in sorted({word // SECTOR * SECTOR for word in words})]
    return tops, high, bottom, parts


def wavefront(turn, here, lanes, waves_of, tops, high):
    """The lanes whose first word it serves, and its words, with links to them. A word of several
    wavefronts has a part for each."""
    links = gathered(((lane, word // WORDS), word % WORDS) for lane, word in here)
    parts = [box(lane, 0, 1, 20, "word", [lane]) for lane in lanes]
    parts += [link(lane, columns, tops[line] - 1) for (lane, line), columns in links.items()]
    for word, lanes in gathered((word, lane) for lane, word in here).items():
        part = high / len(waves_of[word])
        y = tops[word // WORDS] + part * waves_of[word].index(turn)
        parts.append(box(word % WORDS, y, 1, part - 0.5, "word", lanes))
    return parts


def banks(turn, here, y):
    """What the banks do in a wavefront."""
    said = f'<tspan class="wide">wavefront </tspan>{turn + 1}'
    lanes_of = gathered((word % WORDS, lane) for lane, word in here)
    return [label(-0.4, y + 3, said, "end soft"), row(y - 6, 11),
            *(box(bank, y - 6, 1, 11, "word", lanes) for bank, lanes in lanes_of.items())]


@functools.cache
def draw(touches, space):
    """(its height, its parts): the lanes of a request, the lines of memory that it touches, and
    links between them; of shared memory also what the banks do in each wavefront."""
    turn_of = {lane: wave for lane, _, wave in reversed(touches)}
    lanes_of = gathered((turn, lane) for lane, turn in turn_of.items())
    waves_of = gathered(sorted({(word, wave) for _, word, wave in touches}))
    touched_in = gathered((wave, (lane, word)) for lane, word, wave in touches)
    tops, high, bottom, lines = memory(waves_of, space)
    parts = [label(-0.4, 14, "lanes", "end soft"), box(0, 0, WORDS, 20, "line"), *lines]
    for turn in range(1 + max(turn_of.values())):
        here = touched_in[turn]
        parts.append(f'<g style="--wave: {turn / max(1, *turn_of.values()):.2f}">')
        parts += wavefront(turn, here, lanes_of[turn], waves_of, tops, high)
        if space == "shared":
            bottom += 14
            parts += banks(turn, here, bottom)
        parts.append("</g>")
    parts += [label(lane + 0.5, 14, lane, "number middle" + " wide" * (lane % 4 > 0))
              for lane in turn_of]
    return bottom + 10, "".join(parts)


def still(pair):
    """The worst request of each side, as SVG that needs no script."""
    parts, height = [], 4
    for side in pair["sides"]:
        request = side["requests"][side["worst"]]
        site = pair["sites"][request["site"]]
        said = (f"{side['name']}: {side['at'][request['site']][3]}, "
                f"{units(request['cost'], site['unit'])}")
        more, drawing = pair["drawings"][request["drawing"]]
        drawing = re.sub(r'(?<= at">)\d+', lambda at, first=request["first"]:
                         f"{first + int(at[0]):+,}", drawing)
        parts += [label(-3.1, height + 16, html.escape(said), "title"),
                  label(-3.1, height + 34, request["about"], "soft"),
                  f'<g transform="translate(0 {height + 46})">{drawing}</g>']
        height += more + 56
    return STILL.substitute(kernel=pair["kernel"], height=height, parts="\n".join(parts),
                            style=STYLE.read_text(encoding="utf-8"))


# ---- The page


def sides(stage):
    return [each for each in (stage.before, stage) if each and each.is_cuda]


def pairs(stage):
    """The pair of each kernel: first that of KERNEL, or the one that the stage has changed most."""
    found = sorted((pair(sides(stage), name) for name, kernel in trace.trace(stage).items()
                    if kernel["requests"]), reverse=True, key=lambda each: (
                        abs(each["cycles"][0] - each["cycles"][-1]), each["cycles"][-1]))
    return sorted(found, key=lambda each: each["kernel"] != given("KERNEL"))


@functools.cache
def page(stage):
    """Its text."""
    found = pairs(stage)
    data = {"pairs": found, "cell": trace.cell(stage.ladder), "warp": trace.chosen("WARP"),
            "block": trace.chosen("BLOCK")}
    text = PAGE.read_text(encoding="utf-8")
    for name, value in (("NAME", " and ".join(each.number for each in sides(stage))),
                        ("STYLE", STYLE.read_text(encoding="utf-8")), ("STILL", still(found[0])),
                        ("DATA", b64encode(zlib.compress(json.dumps(data).encode())).decode())):
        text = text.replace(f"@{name}@", value)
    return text


def traced(stage):
    """Whether the stage can be traced here. If not, what ended it has said why."""
    try:
        return any(kernel["requests"] for kernel in trace.trace(stage).values())
    except SystemExit:
        return False


def pages(stages):
    """{stage: its page} of those that can be traced here. Several are built and run at once."""
    stages = [stage for stage in stages if stage.is_cuda and stage.ladder.toml["counts"]]
    with ThreadPoolExecutor(processors()) as pool:
        found = [stage for stage, is_there in zip(stages, pool.map(traced, stages)) if is_there]
    return {stage: page(stage) for stage in found if not stage.before or stage.before in found
            or not stage.before.is_cuda}


def main():
    os.chdir(ROOT)
    stage = ladders.find_ladder(given("STUDY")).find(given("STAGE"))
    if not stage.is_cuda:
        fail(f"STAGE: found '{stage.name}', expected a CUDA stage")
    kernels = [name for name, kernel in trace.trace(stage).items() if kernel["requests"]]
    if not kernels:
        fail(f"WARP: found {trace.chosen('WARP')} in BLOCK {trace.chosen('BLOCK')}, expected one "
             "that loads or stores")
    if given("KERNEL") not in ("", *kernels):
        fail(f"KERNEL: found '{given('KERNEL')}', expected one of {' '.join(kernels)}")
    path = OUT / f"{stage.name}.html"
    path.parent.mkdir(exist_ok=True)
    path.write_text(page(stage), encoding="utf-8")
    print(f"Open {path.relative_to(ROOT)}")
    if "(look.svg)" in stage.read("README.md") and {*GIVEN} <= {"STAGE", "STUDY"}:
        (stage.folder / "look.svg").write_text(still(pairs(stage)[0]), encoding="utf-8")


if __name__ == "__main__":
    main()
