"""The command line of run_all.sh."""

import argparse
import os

from bench import ladders, rows
from bench.base import fail, number


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message.removeprefix("argument "))


def value_of(kind, least=None):
    """Returns what turns an option's text into a value: `kind` is its type, or [it] for a list."""
    def convert(text):
        try:
            if isinstance(kind, list):
                return [number(part, kind[0], least) for part in text.split(",")]
            return number(text, kind, least)
        except ValueError as expected:
            raise argparse.ArgumentTypeError(f"found '{text}', expected {expected}") from None
    return convert


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

    def add(option, text, metavar=None, group=parser, **keywords):
        keywords |= {"metavar": metavar} if metavar else {"action": "store_true", "default": None}
        group.add_argument(f"--{option}", dest=option, help=text, **keywords)

    add("stages", "names of stages, or how they begin: 00,02 (all but the steps)", "LIST",
        type=value_of([str]))
    kinds = parser.add_mutually_exclusive_group()
    add("steps", "measure instead all stages and steps, such as 01.1_name, in two cells and 16 "
        "rounds", group=kinds)
    add("growth", "measure instead how the cost grows with each option", group=kinds)
    add("peers", "also run what you might use instead of the stages")
    add("gpu", "only what needs a GPU")
    known = rows.parameters(ladder)
    for axis in ladder.axes:
        kind, least = known[ladder.column(axis["option"])]
        add(axis["option"], f"{axis['name']} ({','.join(map(str, axis['values']))})", "LIST",
            type=value_of([kind], least))
    for option, value in ladder.settings.items():
        kind = known[ladder.column(option)]
        words = {} if kind[0] is bool else {"metavar": "N", "type": value_of(*kind)}
        add(option, f"({value})", **words)
    add("repeats", "exactly N rounds in each cell (3 to 12, on a GPU to 250; 2 over 5 s, 1 over "
        "20 s; with --steps 16, or 8 over 1 s)", "N", type=value_of(int, 1))
    add("threads", "for stages that can use several (all); tables have the most, a plot has each",
        "LIST", type=value_of([int], 1))
    add("quick", "a look in under a minute, at a part of the grid; a run over 0.5 s is not "
        "repeated; results go to report/results/<machine>-quick")
    add("data", "MNIST, or a study's own data ($MNIST_DIR, data/mnist, a download, or else a "
        "synthetic set)", "DIR", type=os.path.abspath)
    add("output", "where the results go, instead of report/results/<machine>/<ladder>", "DIR",
        type=os.path.abspath)
    add("resume", "keep earlier runs and do the missing ones; without it, earlier results of the "
        "same kind move to a folder beside the new ones, named after their date")
    options = parser.parse_args(arguments)
    if options.growth and not ladder.toml["growth"]:
        fail(f"--growth: found no [growth] in {ladder.name}/ladder.toml")
    return options, ladder
