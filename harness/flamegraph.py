"""Draws a flame graph (Gregg, CACM 59(6), 2016) as plain SVG.

A box is a function, as wide as its share of the samples. On it stand the functions that it calls.
The colour means nothing. Under the mouse, a browser shows a box's title: its name and share, which
many boxes are too narrow for.
"""

import zlib
from collections import Counter
from html import escape

WIDTH, MARGIN, ROW, TOP = 1000, 10, 18, 36
CHARACTER = 6.6  # its width in pixels, a bit above that of the widest monospaced font at 11 pixels


def box(name, samples, share, x, y, width):
    hue, light = 20 + zlib.crc32(name.encode()) % 35, 66 + zlib.crc32(name[::-1].encode()) % 12
    room = int((width - 6) / CHARACTER)
    label = f"{name} {100 * share:.1f} %"
    if len(label) > room:
        label = name if len(name) <= room else name[:room - 1] + "…"
    text = f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(label)}</text>' if room >= 3 else ""
    return (f"<g><title>{escape(name)}: {samples} samples, {100 * share:.1f} %</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" rx="2" '
            f'fill="hsl({hue}, 90%, {light}%)"/>{text}</g>')


def draw(title, stacks):
    """The SVG of [(names, from the outermost function to the innermost; samples)]."""
    samples = Counter()
    for names, count in stacks:
        for depth in range(len(names) + 1):
            samples[("all", *names)[:depth + 1]] += count
    levels = max(map(len, samples))
    height = TOP + levels * ROW + MARGIN
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}" '
             'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="11">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
             f'<text x="{WIDTH / 2}" y="22" text-anchor="middle" font-size="14" '
             f'font-family="sans-serif">{escape(title)}</text>']
    left = [MARGIN] * (levels + 1)  # where the next box of each level begins
    for path in sorted(samples):  # a function comes before those that it calls
        level, share = len(path), samples[path] / samples["all",]
        x, width = left[level - 1], share * (WIDTH - 2 * MARGIN)
        left[level - 1:level + 1] = x + width, x
        if width >= 0.5:
            y = height - MARGIN - level * ROW
            lines.append(box(path[-1], samples[path], share, x, y, width))
    return "\n".join([*lines, "</svg>\n"])
