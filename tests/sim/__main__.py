"""Any number of seeds of the election, by hand.

    python -m tests.sim --seeds 5000 [--first 1000] [--bug "no fence"] [--trace FILE]

Prints the first seed that fails, with its story and the command that replays it. `--trace` writes every step of that
seed. With `--bug` the named protection is removed (`--bug list` lists them); then a seed that fails is hoped for.
"""
# ruff: noqa: T201 -- a command

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from pathlib import Path

import structlog

from holdfast.testing import World, simulate
from tests.sim.bugs import BUGS
from tests.sim.reign import Reigns, reign

EVERY = 50


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
        return _run(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Seeds of the simulated election.")
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--bug", default="", help="plant this bug")
    parser.add_argument("--trace", type=Path, help="write every step of a seed that fails, or of the last one, here")
    return parser


def _run(given: argparse.Namespace) -> int:
    terms = writes = 0
    for seed in range(given.first, given.first + given.seeds):
        worlds: list[World] = []

        async def scenario(world: World, worlds: list[World] = worlds) -> Reigns:
            worlds.append(world)
            return await reign(world)

        try:
            came_to = simulate(seed, scenario).value
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told, with its seed
            _tell(error, seed, given.bug)
            _write(given.trace, worlds)
            return 1
        terms, writes = terms + came_to.terms, writes + came_to.writes
        if (seed - given.first) % EVERY == EVERY - 1:
            print(f"{seed - given.first + 1} seeds, {terms} terms, {writes} writes: all well", flush=True)
    _write(given.trace, worlds)
    print(f"{given.seeds} seeds from {given.first}, {terms} terms, {writes} writes: every promise held")
    return 0


def _tell(error: Exception, seed: int, bug: str) -> None:
    print(f"seed {seed}: {type(error).__name__}: {error}")
    print("\n".join(getattr(error, "__notes__", ())))
    planted = f' --bug "{bug}"' if bug else ""
    print(f"replay it with: {replay(seed)}{planted} --trace FILE")


def _write(path: Path | None, worlds: list[World]) -> None:
    if path is not None and worlds:
        path.write_text(worlds[0].trace.text, encoding="utf-8")


def replay(seed: int) -> str:
    return f"python -m tests.sim --seeds 1 --first {seed}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
