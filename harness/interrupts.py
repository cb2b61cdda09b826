"""Ctrl-C ends a program without a traceback. Every program imports this before anything that takes
time.

While a program imports, Ctrl-C ends it at once: an exception would come up in any of the imports,
and some of them swallow it. From start() on, it is an exception.
"""

import signal
import sys

IS_IGNORED = signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # as in the background of a script
if not IS_IGNORED:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # run_all.sh has blocked it


def start(main, *words):
    """Runs a program's main(). After Ctrl-C, it removes its temporary files and ends with 130."""
    try:
        if not IS_IGNORED:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.exit(main(*words))
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        if not IS_IGNORED:  # nothing is left to remove
            signal.signal(signal.SIGINT, signal.SIG_DFL)
