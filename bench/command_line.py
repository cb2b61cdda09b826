"""The command line of run_all.sh."""

import argparse
import os

from bench import ladders, rows
from bench.base import fail, value


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message.removeprefix("argument "))


def parse(arguments):
    """(options, ladder). The ladder's axes and settings are options too."""
    parser = Parser(prog="run_all.sh", allow_abbrev=False, add_help=False)
    parser.add_argument("--study", metavar="NAME", help="a ladder in studies/ (that in stages/)")
    ladder = ladders.find_ladder(parser.parse_known_args(arguments)[0].study, "--study")
    parser = Parser(
        prog="run_all.sh", usage="./run_all.sh [option ...]", allow_abbrev=False, parents=[parser],
        description="Builds the stages of a ladder, runs them over its grid and prints the tables. "
        "Ctrl-C keeps every finished run, and --resume goes on from there.",
        epilog="Exit status: 0; 1 a stage failed; 2 wrong options or data; 130 or 143 interrupted.")

    def add_flag(option, text):
        parser.add_argument(f"--{option}", dest=option, help=text, action="store_true",
                            default=None)

    def add_value(option, text, kind, *limits):
        parser.add_argument(f"--{option}", dest=option, help=text,
                            metavar="LIST" if isinstance(kind, list) else "N",
                            type=lambda found: value(f"--{option}", found, kind, *limits))

    add_value("stages", "names of stages, or how they begin: 00,02 (all but the steps)", [str])
    kinds = parser.add_mutually_exclusive_group()
    for kind, text in (
            ("steps", "all stages and steps, such as 01.1_name, in two cells and 16 rounds"),
            ("growth", "how the cost grows with each option")):
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind,
                           default="grid", help=f"measure instead {text}")
    add_flag("peers", "also run what you might use instead of the stages")
    known = rows.parameters(ladder)
    for axis in ladder.axes:
        kind, least = known[ladder.column(axis["option"])]
        add_value(axis["option"], f"{axis['name']} ({','.join(map(str, axis['values']))})",
                  [kind], least)
    for option, default in ladder.settings.items():
        if isinstance(default, bool):
            add_flag(option, f"({default})")
        else:
            add_value(option, f"({default})", *known[ladder.column(option)])
    add_value("repeats", "exactly N rounds in each cell (3 to 12, on a GPU to 250; 2 from 5 s on, "
              "1 from 20 s on; with --steps 16, or 8 from 1 s on)", int, 1)
    add_value("threads", "for stages that can use several (all); tables have the most, a plot has "
              "each", [int], 1, 2**31 - 1)
    add_flag("quick", "a look in under a minute, at a part of the grid; a run over 0.5 s is not "
             "repeated; results go to report/results/<machine>-quick")
    add_value("limit", "end after so many seconds: the headline's cells come first, a run has an "
              "eighth at most, and what had no time is noted as cut off", float, 0)
    add_flag("resume", "keep earlier runs and do the missing ones; without it, earlier results of "
             "the same kind move to a folder beside the new ones, named after their date")
    for option, text in (
            ("data", "MNIST, or a study's own data ($MNIST_DIR, data/mnist, a download, or else a "
             "synthetic set)"),
            ("output", "where the results go, instead of report/results/<machine>/<ladder>")):
        parser.add_argument(
            f"--{option}", help=text, metavar="DIR",
            type=lambda found, where=f"--{option}": os.path.abspath(value(where, found, str)))
    options = parser.parse_args(arguments)
    if options.kind == "growth" and not ladder.toml["growth"]:
        fail(f"--growth: found no [growth] in {ladder.name}/ladder.toml")
    return options, ladder
