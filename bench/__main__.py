"""Starts a program of this repository: python3 -m bench compare A=00 B=01

The name is that of a module with a main(): of bench/, or with its folder before it.
"""

import importlib
import signal
import sys
import tempfile
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # also for `python3 /path/bench`


def leave(number, _):
    """Ends Python by an exception, so that what it has started is ended, too. Make passes a signal
    on, and then it comes twice."""
    for each in base.ENDS:
        signal.signal(each, signal.SIG_IGN)
    raise base.Interrupted(128 + number)


if __name__ == "__main__":
    from bench import base, options
    for number in base.ENDS:
        if signal.getsignal(number) != signal.SIG_IGN:  # with nohup, it is
            signal.signal(number, leave)
    module = sys.argv.pop(1)
    sys.argv = [module.rpartition(".")[2], *options.read(sys.argv[1:])]
    if sys.stdout:  # not closed: its lines are in order with those of the programs it starts
        sys.stdout.reconfigure(line_buffering=True)
    try:
        main = importlib.import_module(module if "." in module else f"bench.{module}").main
    except ModuleNotFoundError as error:
        base.fail(f"{sys.executable} has no {error.name}; expected Python 3.11 with what "
                  "setup/requirements.txt names: type setup/deps.sh, or see setup/README.md")
    try:
        sys.exit(main())
    except OSError as error:
        where = "" if error.filename else f" (TMPDIR is {tempfile.gettempdir()})"
        sys.exit(f"{sys.argv[0]}: {error}{where}")
