"""Starts a program of this repository: python3 -m harness compare 00 01

The name is that of a module: of harness/, or with its folder before it. Modules import each other
as `from harness import ladders`, and only this file says where they are, also when the folder is started: python3 /path/harness. A program is a module with
a main().

Ctrl-C ends a program without a traceback. While it imports, Ctrl-C ends it at once: an exception
would come up in any of the imports, and some of them swallow it. Later it is an exception.
"""

import signal
import sys

IS_IGNORED = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as in the background of a script
if not IS_IGNORED:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # run_all.sh has blocked it

import importlib  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path[0] = str(Path(__file__).resolve().parent.parent)


def start(name):
    """Runs a program's main(). After Ctrl-C, it removes its temporary files and ends with 130."""
    main = importlib.import_module(name if "." in name else f"harness.{name}").main
    try:
        if not IS_IGNORED:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        sys.exit(f"{sys.argv[0]}: {error}")
    finally:
        if not IS_IGNORED:  # nothing is left to remove
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    module = sys.argv.pop(1)
    sys.argv[0] = module.rpartition(".")[2]
    start(module)
