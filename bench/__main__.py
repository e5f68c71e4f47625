from __future__ import annotations

import signal
import sys

from bench.frame import main

if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # what was started, and its memory, is cleaned up then too
    sys.exit(main(sys.argv[1:]))
