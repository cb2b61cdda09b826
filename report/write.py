"""Writes what the READMEs show of the reference machine's results: `make report`. On a machine that
has results of its own, writes a page of those instead, unless REFERENCE names one for the READMEs.
"""

import runpy
from functools import partial

from bench import ladders, process, rows
from bench.base import ROOT
from bench.options import given
from bench.stage import OWN
from report import blocks, figures, makes, plots, table, view


def update_readmes(ladder, results):
    """Writes the blocks of a ladder's README and of its stages', and the pictures of the moves."""
    for page, name, block in (("README.md", "table", blocks.headline),
                              ("README.md", "ladder", blocks.ladder),
                              ("README.md", "makes", makes.block),
                              ("README.md", "compilers", makes.of_compilers),
                              ("README.md", "roofline", blocks.roofline),
                              ("PAPER.md", "tables", blocks.paper),
                              ("PAPER.md", "tutorial", blocks.tutorial),
                              ("PREDICTIONS.md", "predictions", blocks.predictions)):
        if results:
            blocks.update(ladder.folder / page, name, partial(block, results, ladder.folder))
    for stage in ladder.stages:
        if (path := stage.folder / "picture.py").exists():  # a stage's name is no module's
            runpy.run_path(str(path))["draw"](stage).save(path.with_suffix(".svg"))
        for name, block in ("table", partial(blocks.measured, results)), ("counts", blocks.counted):
            blocks.update(stage.folder / "README.md", name, partial(block, stage))


def list_ladders(folder):
    return "\n".join(["| ladder | its work | the paper |", "| --- | --- | --- |", *(
        f"| {table.link(each.name, each.folder, folder)} | {each.title} "
        f"| {each.toml.get('paper', {}).get('cite', '')} |" for each in ladders.ladders())])


def page_of_machine(machine):
    """The page of a machine's results, or "" where it has none."""
    parts = []
    for ladder in ladders.ladders():
        results = view.read(machine / ladder.name, ladder)
        if results:
            plots.write(results)
            parts += [f"# {ladder.title}", blocks.headline(results, machine),
                      blocks.ladder(results, machine)]
    return "\n\n".join([*parts, ""])


def own_machine():
    """The folder of this machine's results, or of a look, if READMEs show another's."""
    name = process.output(["bench/machine.sh", "--name"])
    if given("REFERENCE") or name == view.reference_name():
        return None
    found = (view.HERE / "results" / each for each in (name, f"{name}-quick"))
    return next((folder for folder in found if [*folder.glob("*/runs.csv")]), None)


def main():
    if own := own_machine():
        rows.write(own / "README.md", page_of_machine(own))
        print(f"Written to {own.relative_to(ROOT)}/README.md; the READMEs stay as they are")
        return
    if not given("REFERENCE"):  # a reader's own stages are in no committed page
        for ladder in ladders.ladders():
            ladder.stages = [stage for stage in ladder.stages if stage.number < OWN]
    first = ladders.ladders()[0]
    everything = {ladder: view.reference(ladder) for ladder in ladders.ladders()}
    for ladder, results in everything.items():
        if results:
            plots.write(results)
        update_readmes(ladder, results)
    if results := everything[first]:
        if results.grid.baseline:
            plots.save(plots.stages(results), results.plots / "stages.svg")
        blocks.update(ROOT / "README.md", "front", partial(blocks.front, results, ROOT))
    blocks.update(ROOT / "studies/README.md", "ladders", lambda: list_ladders(ROOT / "studies"))
    for path, ladder in figures.pages().items():
        figures.update(path, ladder, everything)
