"""Run any number of seeds of a simulation from the command line.

Prints the first seed that fails, with its last notes and the command that replays it. With `--trace` every step of that
seed, or of the last one, is written to a file. With `--bug` the named protection is removed (`--bug list` lists them);
then a failing seed is expected.
"""
# ruff: noqa: T201 -- a command

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from holdfast.testing import World, simulate
from holdfast.testing.sim.simulate import Scenario

T = TypeVar("T")
EVERY = 50


@dataclass(frozen=True, slots=True)
class Seeds(Generic[T]):
    """One simulation as a command. `came_to` names the counts of a run, so that a run without events is not taken for a
    proof."""

    command: str
    of: str
    scenario: Scenario[T]
    bugs: Mapping[str, Callable[[], contextlib.AbstractContextManager[object]]]
    came_to: Callable[[T], Mapping[str, int]]

    def main(self, arguments: list[str]) -> int:
        """Run the command and return its exit code."""
        given = self._parser().parse_args(arguments)
        if given.bug == "list":
            print("\n".join(self.bugs))
            return 0
        if given.bug and given.bug not in self.bugs:
            print(f"there is no planted bug {given.bug!r}: --bug list lists them", file=sys.stderr)
            return 2
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        with self.bugs[given.bug]() if given.bug else contextlib.nullcontext():
            return self._run(given)

    def replay(self, seed: int) -> str:
        return f"{self.command} --seeds 1 --first {seed}"

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(prog=self.command, description=f"Seeds of the simulated {self.of}.")
        parser.add_argument("--seeds", type=int, default=300, help="how many")
        parser.add_argument("--first", type=int, default=0, help="the first of them")
        parser.add_argument("--bug", default="", help="plant this bug")
        parser.add_argument(
            "--trace", type=Path, help="write every step of a seed that fails, or of the last one, here"
        )
        return parser

    def _run(self, given: argparse.Namespace) -> int:
        total: Counter[str] = Counter()
        worlds: list[World] = []
        for count, seed in enumerate(range(given.first, given.first + given.seeds), start=1):
            worlds.clear()
            try:
                total.update(self.came_to(simulate(seed, self._seen(worlds)).value))
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is told, with its seed
                self._tell(error, seed, given.bug)
                _write(given.trace, worlds)
                return 1
            if count % EVERY == 0:
                print(f"{count} seeds, {_listed(total)}: all well", flush=True)
        _write(given.trace, worlds)
        print(f"{given.seeds} seeds from {given.first}, {_listed(total)}: every promise held")
        return 0

    def _seen(self, worlds: list[World]) -> Scenario[T]:
        """Wrap the scenario so that its world can be inspected afterwards."""

        @wraps(self.scenario)
        async def scenario(world: World) -> T:
            worlds.append(world)
            value: T = await self.scenario(world)
            return value

        return scenario

    def _tell(self, error: Exception, seed: int, bug: str) -> None:
        print(f"seed {seed}: {type(error).__name__}: {error}")
        print("\n".join(getattr(error, "__notes__", ())))
        planted = f' --bug "{bug}"' if bug else ""
        print(f"replay it with: {self.replay(seed)}{planted} --trace FILE")


def _listed(total: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in total.items())


def _write(path: Path | None, worlds: list[World]) -> None:
    if path is not None and worlds:
        path.write_text(worlds[0].trace.text, encoding="utf-8")
