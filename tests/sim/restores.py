"""The simulated restores by hand: python -m tests.sim.restores --seeds 5000 [--first 1000] [--bug "no marks"]."""

from __future__ import annotations

import sys

from tests.sim.restore_bugs import BUGS
from tests.sim.restore_scenario import restore_scenario
from tests.sim.seeds import Seeds

RESTORES = Seeds(
    "python -m tests.sim.restores",
    "restores",
    restore_scenario,
    BUGS,
    lambda one: {
        "restores": one.restores,
        "verdicts": one.verdicts,
        "adoptions": one.adoptions,
        "changes": one.changes,
        "deletes": one.deletes,
    },
)

if __name__ == "__main__":
    sys.exit(RESTORES.main(sys.argv[1:]))
