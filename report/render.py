"""Fills the templates of the pages. What goes into one is escaped there, so that no text of a file
becomes a part of the page. Only what a function has made as HTML is Markup."""

from markupsafe import Markup

from harness import rows
from report import view


def part(group, line, cell):
    """The part of its ceiling that a cell reaches, and this in words."""
    reached = line and group.part_of_ceiling(line, cell)
    return reached or 0, view.percent(reached) + group.mark(line) if reached else "-"


def ratio(group, line, other, cell):
    """How many times as fast as another line, in words. Empty where no round has both."""
    found = line != other and group.ratio(line, other, cell)
    return found.text if found else ""


def page(template, **values):
    """A page's text."""
    return view.environment(autoescape=True).get_template(template).render(
        part=part, ratio=ratio, style=Markup(rows.read(view.HERE / "page.css")), **values)
