"""`make look`: a page that draws what a warp of a stage's kernels asks of memory, lane by lane,
beside the same of the stage before. lanes.html has the page's script, and this module what it
draws."""

import functools
import html
import json
import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from itertools import count
from pathlib import Path

from bench import ladders
from bench.base import ROOT, fail
from bench.options import given
from bench.stage import processors
from report import trace

LINE = 128  # bytes: four sectors, or a word of each bank
PAGE = Path(__file__).with_suffix(".html")
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


class Shapes:
    """How requests lie in memory, each way once: those of a loop lie alike, elsewhere."""

    def __init__(self):
        self.numbers, self.all = {}, []

    def add(self, request):
        """(the number of its shape, the address at which this begins)."""
        lanes = {lane: request["start"] + at for lane, at in enumerate(request["lanes"])
                 if at is not None}
        start = min(lanes.values()) // trace.WORD * trace.WORD
        lanes = {lane: at - start for lane, at in lanes.items()}
        key = request["bytes"], request["space"], *lanes.items()
        if key not in self.numbers:
            self.numbers[key] = len(self.all)
            touched = [[lane, at // trace.WORD + i, wavefront] for lane, at in lanes.items()
                       for i, wavefront in enumerate(request["by"][lane])]
            self.all.append({"bytes": request["bytes"], "lanes": [*lanes.items()],
                             "touches": touched})
        return self.numbers[key], start


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


def side(stage, kernel, numbers, shapes):
    """What the page knows of one stage's kernel."""
    requests, sites = [], keys(kernel)
    for each in kernel["requests"]:
        shape, at = shapes.add(each)
        site = numbers[sites[each["place"], each["space"], each["kind"]]]
        requests.append([site, shape, at, each["start"], each["interval"],
                         each["wavefronts"] or each["sectors"], each["misses"]])
    at = {numbers[key]: [place.line, place.start, place.end, place.text, place.calls]
          for (place, *_), key in sites.items()}
    return {"name": stage.number, "title": stage.move, "block": kernel["block"],
            "grid": kernel["grid"], "requests": requests, "at": at}


def pair(stages, name):
    """A kernel in the stages that have it: one, or the one before too."""
    sides = [(stage, trace.trace(stage)[name]) for stage in stages if name in trace.trace(stage)]
    found = dict.fromkeys(key for _, kernel in sides for key in keys(kernel).values())
    numbers, shapes = dict(zip(found, count())), Shapes()
    sources = [source(stage, kernel) for stage, kernel in sides]
    return {"kernel": name, "cycles": [kernel["cycles"] for _, kernel in sides],
            "sites": [{"space": key[1], "kind": key[2]} for key in found],
            "sides": [side(*each, numbers, shapes) for each in sides],
            "rows": rows([sources[0], sources[-1]]), "shapes": shapes.all}


def rank(pair):
    """What the page shows first: the kernel that the stage has changed most, or the longest."""
    return abs(pair["cycles"][0] - pair["cycles"][-1]), pair["cycles"][-1]


def worst(pair):
    """(the number of a side, that of its request with the most cycles). Of several, it is one of
    the expression that the stage has changed most, or that takes most."""
    is_shared = [site["space"] == "shared" for site in pair["sites"]]
    found, sums = [], [Counter() for _ in pair["sides"]]
    for number, each in enumerate(pair["sides"]):
        for i, (site, *_, cost, _) in enumerate(each["requests"]):
            taken = cost if is_shared[site] else -(-cost // trace.SECTORS_A_CYCLE)
            sums[number][site] += taken
            found.append((taken, site, number, i))
    *_, number, i = max(found, key=lambda each: (
        each[0], abs(sums[0][each[1]] - sums[-1][each[1]]), sums[-1][each[1]], -each[2], -each[3]))
    return number, i


# ---- A picture that needs no script


def lane_path(lane, word, top):
    """From a lane to a word of a line that begins there."""
    x, end = 70 + 20 * lane, 70 + 20 * (word % 32)
    return (f'<path d="M{x} 19C{x} 50 {end} 50 {end} {top}"/>'
            f'<rect x="{end - 9}" y="{top + 1}" width="18" height="12"/>')


def picture(pair):
    """The worst request as SVG: its lanes, the bytes that they want, and lines between."""
    number, i = worst(pair)
    site, shape, at, start, _, cost, _ = pair["sides"][number]["requests"][i]
    touched = [(lane, at // trace.WORD + word, wave)
               for lane, word, wave in pair["shapes"][shape]["touches"]]
    tops = {line: 82 + 14 * y
            for y, line in enumerate(sorted({word // 32 for _, word, _ in touched}))}
    waves = 1 + max(wave for *_, wave in touched)
    drawn = [f'<rect x="{60 + 20 * lane}" y="1" width="19" height="18" class="lane"/>'
             f'<text x="{69.5 + 20 * lane}" y="14">{lane}</text>' for lane in range(trace.LANES)]
    drawn += [f'<text x="52" y="{top + 11}" class="end">{line * LINE - start:+,}</text>'
              f'<path d="M60 {top + 0.5}h640v13h-640z" class="line"/>'
              for line, top in tops.items()]
    drawn += [f'<g style="--wave: {wave / waves:.2f}">{lane_path(lane, word, tops[word // 32])}</g>'
              for lane, word, wave in touched]
    unit = "wavefronts" if pair["sites"][site]["space"] == "shared" else "sectors"
    title = html.escape(f"{pair['kernel']} in {pair['sides'][number]['name']}, "
                        f"{pair['sides'][number]['at'][site][3]}: {unit}: {cost}")
    return (f'<p>{title}</p>\n<svg class="still" viewBox="0 0 702 {max(tops.values()) + 20}" '
            f'role="img" aria-label="{title}">{"".join(drawn)}</svg>')


# ---- The page


@functools.cache
def page(stage):
    """Its text."""
    stages = [each for each in (stage.before, stage) if each and each.is_cuda]
    pairs = sorted((pair(stages, name) for name, kernel in trace.trace(stage).items()
                    if kernel["requests"]), key=rank, reverse=True)
    chosen = given("KERNEL") or pairs[0]["kernel"]
    pairs.sort(key=lambda each: each["kernel"] != chosen)
    data = {"pairs": pairs, "first": [*map(worst, pairs)], "cell": trace.cell(stage.ladder),
            "warp": trace.chosen("WARP"), "block": trace.chosen("BLOCK")}
    text = PAGE.read_text(encoding="utf-8")
    for name, value in (("NAME", " and ".join(each.number for each in stages)),
                        ("STILL", picture(pairs[0])),
                        ("DATA", json.dumps(data, separators=(",", ":")).replace("</", "<\\/"))):
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


if __name__ == "__main__":
    main()
