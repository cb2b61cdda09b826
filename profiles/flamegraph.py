#!/usr/bin/env python3
"""Draws a flame graph (Gregg, CACM 59(6), 2016) as plain SVG.

    google-pprof --collapsed profile | flamegraph.py TITLE >flame.svg

Reads "outer;inner;innermost count" lines. A box is a function, as wide as its share of the samples.
On it stand the functions that it calls. The colour means nothing. A browser shows a box's title
under the mouse: the full name and the share.
"""

import sys
import zlib
from xml.sax.saxutils import escape

WIDTH, MARGIN, ROW, TOP = 1000, 10, 18, 36
CHARACTER = 6.6  # its width in pixels, a bit above that of the widest monospaced font at 11 pixels


class Frame:
    def __init__(self):
        self.samples = 0
        self.calls = {}

    def depth(self):
        return 1 + max((frame.depth() for frame in self.calls.values()), default=0)


def read(lines):
    root = Frame()
    for line in lines:
        stack, count = line.rsplit(None, 1)
        frame = root
        frame.samples += int(count)
        for name in stack.split(";"):
            frame = frame.calls.setdefault(name.replace("[inline]", " (inline)"), Frame())
            frame.samples += int(count)
    return root


def draw(frame, name, x, level, scale, height):
    width = frame.samples * scale
    if width < 0.5:
        return
    y = height - MARGIN - (level + 1) * ROW
    share = f"{name}: {frame.samples} samples, {100 * width / (WIDTH - 2 * MARGIN):.1f} %"
    hue = 20 + zlib.crc32(name.encode()) % 35
    colour = f"hsl({hue}, 90%, {66 + zlib.crc32(name[::-1].encode()) % 12}%)"
    print(f'<g><title>{escape(share)}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" '
          f'height="{ROW - 1}" rx="2" fill="{colour}"/>', end="")
    room = int((width - 6) / CHARACTER)
    label = name if len(name) <= room else name[:room - 1] + "…"
    if room >= 3:
        print(f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(label)}</text>', end="")
    print("</g>")
    for callee in sorted(frame.calls):
        draw(frame.calls[callee], callee, x, level + 1, scale, height)
        x += frame.calls[callee].samples * scale


def main():
    root = read(sys.stdin)
    if not root.samples:
        sys.exit("flamegraph.py: found no samples")
    height = TOP + root.depth() * ROW + MARGIN
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
          f'height="{height}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" '
          'font-size="11">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="white"/>')
    print(f'<text x="{WIDTH / 2}" y="22" text-anchor="middle" font-size="14" '
          f'font-family="sans-serif">{escape(" ".join(sys.argv[1:]))}</text>')
    draw(root, "all", MARGIN, 0, (WIDTH - 2 * MARGIN) / root.samples, height)
    print("</svg>")


main()
