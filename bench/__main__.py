from __future__ import annotations

import signal
import sys

from bench.frame import main

if __name__ == "__main__":
    # As Ctrl-C, which asyncio turns into a cancellation: what was started, and its memory, is cleaned up then too.
    # A shell that starts it in the background has SIGINT ignored; then asyncio would not listen to it either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    sys.exit(main(sys.argv[1:]))
