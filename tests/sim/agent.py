"""Any number of seeds of the agent, by hand.

    python -m tests.sim.agent --seeds 5000 [--first 1000] [--bug "no sync gate"]

Prints the first seed that fails, with the end of its story and the command that replays it. With `--bug` the named
protection is removed (`--bug list` lists them); then a seed that fails is hoped for.
"""
# ruff: noqa: T201 -- a command

from __future__ import annotations

import argparse
import contextlib
import logging
import sys

import structlog

from holdfast.testing import simulate
from tests.sim.peers import node_life
from tests.sim.peers_bugs import BUGS

EVERY = 100


def main(arguments: list[str]) -> int:
    given = _parser().parse_args(arguments)
    if given.bug == "list":
        print("\n".join(BUGS))
        return 0
    if given.bug and given.bug not in BUGS:
        print(f"there is no planted bug {given.bug!r}: --bug list lists them", file=sys.stderr)
        return 2
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with BUGS[given.bug]() if given.bug else contextlib.nullcontext():
        return _run(given.first, given.seeds, given.bug)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.agent", description="Seeds of the simulated agent.")
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--bug", default="", help="plant this bug")
    return parser


def _run(first: int, seeds: int, bug: str) -> int:
    lives = edits = removals = 0
    for seed in range(first, first + seeds):
        try:
            came_to = simulate(seed, node_life).value
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told, with its seed
            _tell(error, seed, bug)
            return 1
        lives, edits, removals = lives + came_to.lives, edits + came_to.edits, removals + came_to.removals
        if (seed - first) % EVERY == EVERY - 1:
            print(f"{seed - first + 1} seeds, {lives} lives, {edits} edits, {removals} removals: all well", flush=True)
    print(f"{seeds} seeds from {first}, {lives} lives, {edits} edits, {removals} removals: every promise held")
    return 0


def _tell(error: Exception, seed: int, bug: str) -> None:
    print(f"seed {seed}: {type(error).__name__}: {error}")
    print("\n".join(getattr(error, "__notes__", ())))
    planted = f' --bug "{bug}"' if bug else ""
    print(f"replay it with: python -m tests.sim.agent --seeds 1 --first {seed}{planted}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
