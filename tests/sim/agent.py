"""The simulated agent by hand: python -m tests.sim.agent --seeds 5000 [--first 1000] [--bug "no sync gate"]."""

from __future__ import annotations

import sys

from tests.sim.agent_bugs import BUGS
from tests.sim.agent_scenario import agent_scenario
from tests.sim.seeds import Seeds

AGENT = Seeds(
    "python -m tests.sim.agent",
    "agent",
    agent_scenario,
    BUGS,
    lambda one: {"lives": one.lives, "edits": one.edits, "removals": one.removals},
)

if __name__ == "__main__":
    sys.exit(AGENT.main(sys.argv[1:]))
