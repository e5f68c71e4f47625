from __future__ import annotations

import signal
import sys

from bench.frame import main

if __name__ == "__main__":
    # Handle SIGTERM as Ctrl-C, which asyncio turns into a cancellation, so that child processes and scratch folders
    # are removed. A shell that starts this in the background ignores SIGINT; then asyncio would not handle it either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    sys.exit(main(sys.argv[1:]))
