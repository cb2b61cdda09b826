"""What was counted of CUDA stages (harness/counts.py), as tables of READMEs."""

from harness import counts
from report.view import MARKDOWN, grid, link, move, render


def rows_of(stage):
    return counts.read(stage.ladder.profiles / stage.name / "counts.csv")


def of_stage(stage):
    """A line for each kernel, for the stage's README."""
    found = rows_of(stage)
    compiled = {row["kernel"]: [f"{row[name]:,}" if row[name] != "" else ""
                                for name in counts.COMPILED]
                for row in found if row["registers"]}
    return render(MARKDOWN, "counts.md.j2", architecture=counts.ARCHITECTURE, cells=[
        (cell, copies, grid(counts.HEADS, lines)) for cell, copies, lines in counts.tables(found)],
        compiled=compiled and grid(
            ["kernel", "registers", "bytes spilled", "bytes of shared memory",
             "blocks on a multiprocessor", "loads in the inner loop", "multiply-adds in it"],
            [[kernel, *fact] for kernel, fact in compiled.items()]))


def of_stages(stages, folder):
    """A line for each stage, for a page in `folder`."""
    rows = {stage: rows_of(stage) for stage in stages}
    found = {stage: counts.sums(each) for stage, each in rows.items()}
    cells = dict.fromkeys(cell for sums in found.values() for cell in sums)
    return render(MARKDOWN, "counts.md.j2", compiled="", cells=[(cell, "", grid(
        ["stage", *counts.HEADS[1:], "copied"],
        [[link(stage.name, stage.folder, folder), *counts.line(sums[cell])[1:],
          counts.copied(rows[stage], cell)]
         for stage, sums in found.items() if cell in sums])) for cell in cells])


def of_chapter(stage):
    """The predictions of a stage and its steps, beside the stage before them."""
    chapter = [each for each in stage.ladder.stages if each.name[:2] == stage.name[:2]]
    found = {each: counts.sums(rows_of(each)) for each in (chapter[0].before, *chapter)}
    cells = dict.fromkeys(cell for sums in found.values() for cell in sums)
    return grid(["", "the move", "launches", "cycles", *(f"µs at {cell}" for cell in cells)], [
        [link(each.name, each.folder, stage.folder), move(each),
         *(counts.line(sums[[*cells][-1]])[place] for place in (1, -2)),
         *(f"{counts.predicted(sums[cell]):.1f}" for cell in cells)]
        for each, sums in found.items() if sums])
