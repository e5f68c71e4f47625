"""Run any number of seeds of a simulation from the command line, on several cores with `--jobs`.

Draws a bar on a terminal, prints how far it has come elsewhere, and at the end what the seeds came to and how many
there were per second of CPU time; or the first seed that fails, with its last notes and the command that replays it.
With `--keep-going` all seeds run, and each that fails is one line. With `--trace` every step of the seed that fails, or
of the last one, is written to a file. With `--bug` the named protection is removed (`--bug list` lists them); then a
failing seed is expected.
"""
# ruff: noqa: T201 -- a command

from __future__ import annotations

import argparse
import contextlib
import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from holdfast.testing import World, simulate
from holdfast.testing.sim.simulate import Scenario

T = TypeVar("T")
EVERY = 50
WIDTH = 24


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
        parser.add_argument("--jobs", type=int, default=1, help="processes that run seeds side by side")
        parser.add_argument("--keep-going", action="store_true", help="run all seeds, whatever fails")
        parser.add_argument("--bug", default="", help="plant this bug")
        parser.add_argument(
            "--trace", type=Path, help="write every step of a seed that fails, or of the last one, here"
        )
        return parser

    def _run(self, given: argparse.Namespace) -> int:
        seeds = range(given.first, given.first + given.seeds)
        total: Counter[str] = Counter()
        cpu, simulated, count, failed = 0.0, 0.0, 0, list[int]()
        for count, run in enumerate(self._runs(seeds, given), start=1):
            cpu += run.cpu
            simulated += run.simulated
            total.update(run.came_to)
            if run.failure and not given.keep_going:
                self._tell(run, given.bug)
                return 1
            if run.failure:
                failed.append(run.seed)
                print(f"seed {run.seed}: {run.failure.partition(chr(10))[0]}", flush=True)
            _show(count, given.seeds, f"{_listed(total)}{f', {len(failed)} FAILED' if failed else ''}")
        rate = f"{count / cpu:.2f} seeds per second of CPU time" if cpu else "no seeds"
        shape = f"{given.seeds} seeds from {given.first}, {_listed(total)}, {simulated:.0f} simulated seconds, {rate}"
        if failed:
            print(f"{shape}: {len(failed)} seeds failed: {', '.join(map(str, failed))}")
            return 1
        print(f"{shape}: every promise held")
        return 0

    def _runs(self, seeds: Sequence[int], given: argparse.Namespace) -> Iterator[SeedRun]:
        """Yield the runs as they end. What runs beside a seed that fails is ended with it."""
        if given.jobs == 1:
            yield from (self._one(seed, given) for seed in seeds)
            return
        _FORKED[self.command] = self
        with multiprocessing.get_context("fork").Pool(given.jobs) as pool:
            yield from pool.imap_unordered(partial(_in_a_fork, self.command, given), seeds)

    def _one(self, seed: int, given: argparse.Namespace) -> SeedRun:
        worlds: list[World] = []
        begun = time.process_time()
        came_to: Mapping[str, int] = {}
        failure = ""
        try:
            came_to = self.came_to(simulate(seed, self._seen(worlds)).value)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is told, with its seed
            failure = "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
        _write(given.trace, worlds)
        simulated = worlds[0].time if worlds else 0.0
        return SeedRun(seed, time.process_time() - begun, simulated, came_to, failure)

    def _seen(self, worlds: list[World]) -> Scenario[T]:
        """Wrap the scenario so that its world can be inspected afterwards."""

        @wraps(self.scenario)
        async def scenario(world: World) -> T:
            worlds.append(world)
            value: T = await self.scenario(world)
            return value

        return scenario

    def _tell(self, run: SeedRun, bug: str) -> None:
        print(f"seed {run.seed}: {run.failure}")
        planted = f' --bug "{bug}"' if bug else ""
        print(f"replay it with: {self.replay(run.seed)}{planted} --trace FILE")


@dataclass(frozen=True, slots=True)
class SeedRun:
    """Outcome of one seed; `failure` is empty if every promise held."""

    seed: int
    cpu: float
    simulated: float
    """Seconds that passed in the simulation."""
    came_to: Mapping[str, int]
    failure: str


def _in_a_fork(command: str, given: argparse.Namespace, seed: int) -> SeedRun:
    """Run one seed in a process of a pool; forked, so that nothing but the seed is sent there."""
    return _FORKED[command]._one(seed, given)


_FORKED: dict[str, Seeds[Any]] = {}


def _show(count: int, of: int, text: str) -> None:
    """Draw the bar on a terminal; elsewhere print a line now and then."""
    if sys.stdout.isatty():
        done = WIDTH * count // of
        end = "\n" if count == of else ""
        print(f"\r[{'#' * done}{'.' * (WIDTH - done)}] {count} of {of} seeds, {text}\033[K", end=end, flush=True)
    elif count % EVERY == 0:
        print(f"{count} of {of} seeds, {text}", flush=True)


def _listed(total: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in total.items())


def _write(path: Path | None, worlds: list[World]) -> None:
    if path is not None and worlds:
        path.write_text(worlds[0].trace.text, encoding="utf-8")
