"""The simulated election by hand: python -m tests.sim.election --seeds 5000 [--first 1000] [--bug "no fence"]."""

from __future__ import annotations

import sys

from tests.sim.election_bugs import BUGS
from tests.sim.election_scenario import election_scenario
from tests.sim.seeds import Seeds

ELECTION = Seeds(
    "python -m tests.sim.election",
    "election",
    election_scenario,
    BUGS,
    lambda one: {"terms": one.terms, "writes": one.writes},
)
replay = ELECTION.replay

if __name__ == "__main__":
    sys.exit(ELECTION.main(sys.argv[1:]))
