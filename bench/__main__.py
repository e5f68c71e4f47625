from __future__ import annotations

import sys

from bench.frame import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
