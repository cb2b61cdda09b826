"""Ladders of several machines beside each other, as HTML: for the report and for a class."""

from html import escape

import view


def cell(text, part=0, name=""):
    """A cell of a table, which is marked if its runs differ. Below the text is a bar, as long as
    the part of the ceiling. A phone shows the name of the column."""
    return "".join(["<td", " class=noisy" if "~" in text else "",
                    f' style="--part:{min(part, 1):.3f}"' if part else "",
                    f' data-name="{name}"' if name else "", f">{escape(text)}</td>"])


def lines(group):
    """{stage or peer: its line with most threads} of the cell that shows the ladder."""
    at = view.ladder_cell(group)
    return {line[0]: line for line in group.lines if group.time(line, at)}


def conditions(group):
    """What the numbers of a card are."""
    return "; ".join(filter(None, [
        group.ladder.axes and view.cell_name(group.ladder, view.ladder_cell(group)),
        group.heading(),
        group.repeats(), view.facts(group.folder)]))


def card(heading, about, group, names):
    """A machine's ladder as a table, with a line for each name."""
    at, own, base = view.ladder_cell(group), lines(group), group.baseline
    found = [f"<article>\n<h3>{heading}</h3>\n<p class=small>{escape(about)}</p>\n"
             f"<table><caption class=unseen>The ladder of {heading}</caption>\n"
             f"<thead><tr><th scope=col>stage</th><th scope=col>time ({group.unit})</th>"
             f"<th scope=col>over {escape(group.ladder.toml['baseline'][:2])}</th>"
             "<th scope=col>of ceiling</th></tr></thead>\n<tbody>"]
    for name in names:
        line = own.get(name)
        time, over, part = group.summary(line, [base], at) if line else ("-", "", "")
        found.append(f"<tr><th scope=row>{escape(view.short_label(line or (name, 0)))}</th>"
                     + cell(time) + cell("" if line == base else over)
                     + cell(part, line and group.part_of_ceiling(line, at)) + "</tr>")
    return "\n".join([*found, "</tbody></table></article>"])


def beside(found, peers=False):
    """What the numbers are, and a card for each (heading, about, group). A heading is HTML. All
    cards have the same lines."""
    names = sorted({name for *_, group in found for name, line in lines(group).items()
                    if peers or not view.is_peer(line)})
    cards = "\n".join(card(*each, names) for each in found)
    skips = dict.fromkeys(view.skips_in_words(group, [
        line for name, line in lines(group).items() if name in names]) for *_, group in found)
    signs = "; ".join(view.signs(cards))
    text = " ".join(filter(None, [
        "The ceiling is the rate of multiply-adds alone on as many threads as the stage has. A GPU "
        "has none here. A bar is the part of it that a stage reaches.",
        signs and f"{signs[0].upper()}{signs[1:]}.", *skips]))
    return f"<p class=small>{escape(text)}</p>\n<div class=beside>\n{cards}\n</div>\n"
