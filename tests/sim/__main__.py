"""The simulated election by hand: python -m tests.sim --seeds 5000 [--first 1000] [--bug "no fence"] [--trace FILE]."""

from __future__ import annotations

import sys

from tests.sim.bugs import BUGS
from tests.sim.reign import reign
from tests.sim.seeds import Seeds

ELECTION = Seeds("python -m tests.sim", "election", reign, BUGS, lambda one: {"terms": one.terms, "writes": one.writes})
replay = ELECTION.replay

if __name__ == "__main__":
    sys.exit(ELECTION.main(sys.argv[1:]))
