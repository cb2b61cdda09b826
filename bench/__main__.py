"""Starts a program of this repository: python3 -m bench compare A=00 B=01

The name is that of a module with a main(): of bench/, or with its folder before it.

Ctrl-C ends a program without a traceback. While Python starts, it is blocked by who starts it (`env
--block-signal=INT`). While modules are imported, it ends the program at once: some of them swallow
exceptions. Later it is one, so that what runs is ended too.
"""

import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

import importlib  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path[0] = str(Path(__file__).resolve().parent.parent)  # also for `python3 /path/bench`

if __name__ == "__main__":
    from bench import base, options
    module = sys.argv.pop(1)
    sys.argv = [module.rpartition(".")[2], *options.read(sys.argv[1:])]
    if sys.stdout:  # not closed: its lines are in order with those of the programs it starts
        sys.stdout.reconfigure(line_buffering=True)
    try:
        main = importlib.import_module(module if "." in module else f"bench.{module}").main
    except ModuleNotFoundError as error:
        base.fail(f"{sys.executable} has no {error.name}; expected Python 3.11 with what "
                  "setup/requirements.txt names: type setup/deps.sh, or see setup/README.md")
    for number in base.ENDS:
        if signal.getsignal(number) == signal.SIG_DFL:  # with nohup, it is not
            signal.signal(number, base.leave)
    try:
        sys.exit(main())
    except OSError as error:
        where = "" if error.filename else f" (TMPDIR is {tempfile.gettempdir()})"
        sys.exit(f"{sys.argv[0]}: {error}{where}")
