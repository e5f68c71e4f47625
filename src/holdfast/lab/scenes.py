"""Scenes: what the field does to a control plane, done to the lab, and what came of it.

Each scene says what it did, what happened, how long that took, and whether the promise was kept. Nothing is assumed:
leadership is read from the boards, the writes from the writers' own counts and from etcd's history.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.lab import fleet
from holdfast.lab.writer import Counts, writes_prefix
from holdfast.model.region import Region
from holdfast.model.time import Duration, Instant
from holdfast.runtime.board import Board, BoardError
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Request, ask
from holdfast.runtime.report import report
from holdfast.server.leadership import Leading, Shown, judge
from holdfast.server.workers import LEADERSHIP_CELL
from holdfast.store.client import EtcdStore
from holdfast.store.gateway import Connection

TTL = Duration(seconds=5)
_CLOCK = SystemClock()
_PATIENCE = Duration(seconds=60)
_ANSWERED = Duration(seconds=5)
"""By then a write that was in hand when its process woke has been answered."""


class Broken(Exception):
    """A promise was not kept, or the lab is not as the scene needs it; the message is one sentence."""


Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Lab:
    """A running lab, seen from outside."""

    folder: Path

    def board(self, server: str) -> Board:
        return Board.open(self.folder / "run" / server / "server.board", read_only=True)

    def leading(self, server: str) -> Leading | None:
        try:
            said = judge(self.board(server).cell(LEADERSHIP_CELL, Shown).read(), (), _CLOCK.now())
        except BoardError:
            return None
        return said if isinstance(said, Leading) else None

    def leader(self) -> tuple[str, Leading] | None:
        for server in fleet.SERVERS:
            said = self.leading(server)
            if said is not None:
                return server, said
        return None

    def tree(self, server: str) -> list[int]:
        """The process ids of one server: its supervisor first, then every worker that has shown itself."""
        return [pid for pid in _processes(self.board(server)) if pid is not None]

    def is_up(self, server: str, *, not_as: Collection[int] = ()) -> bool:
        """Whether its supervisor and all of its workers have shown themselves, none as one of these processes."""
        try:
            found = set(_processes(self.board(server)))
        except BoardError:
            return False
        return None not in found and found.isdisjoint(not_as)

    async def counts(self, server: str) -> Counts | None:
        """What became of the server's writes, by its own word; None while it does not answer."""
        path = self.folder / "run" / server / "server.sock"
        said = await ask(path, Request("tell", {"do": "counts"}, "writer"), timeout=2.0)
        return None if said.error else msgspec.convert(said.result, Counts, strict=False)

    async def accepted(self, server: str) -> int:
        """How many writes of this server etcd has accepted, by etcd's word."""
        url = fleet.endpoint(self.folder / "state")
        if url is None:
            raise Broken("the lab's etcd has not been started yet")
        store = EtcdStore(Connection((url,)))
        try:
            entry = await store.get(writes_prefix(Region()) + server.encode())
        finally:
            await store.close()
        return entry.version if entry else 0

    def etcd_pid(self) -> int:
        return int((fleet.etcd_folder(self.folder / "state") / "pid").read_text(encoding="ascii"))


def _processes(board: Board) -> list[int | None]:
    said = report(board, "server", "", _CLOCK.now())
    return [said.supervisor_pid, *(worker.pid for worker in said.workers)]


async def until(what: str, look: Callable[[], object], most: Duration = _PATIENCE) -> Duration:
    """Waits for something to be so; how long that took."""
    began = _CLOCK.now()
    while not look():
        if _CLOCK.now() - began > most:
            raise Broken(f"{what} did not happen within {most.total_seconds():g} s")
        await asyncio.sleep(0.02)
    return _CLOCK.now() - began


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue  # a worker whose supervisor was killed a moment ago is gone already


async def _who_leads(lab: Lab) -> tuple[str, Leading]:
    await until("somebody leading", lab.leader)
    found = lab.leader()
    if found is None:
        raise Broken("leadership was lost just now: try again")
    return found


async def leader_kill(lab: Lab, say: Say, seconds: float) -> None:
    """SIGKILL for the whole server that leads."""
    name, before = await _who_leads(lab)
    pids = lab.tree(name)
    _send(pids, signal.SIGKILL)
    say(f"killed {name}, which led term {before.term}: {len(pids)} processes, SIGKILL")
    took = await until("another server leading", lambda: (found := lab.leader()) and found[1].term > before.term)
    after, reign = await _who_leads(lab)
    say(f"{after} leads after {took.total_seconds():.2f} s, term {reign.term}")
    _promise(
        took <= TTL + Duration(seconds=1), f"a new leader within {(TTL + Duration(seconds=1)).total_seconds():g} s"
    )
    back = await until(f"{name} coming back", lambda: lab.is_up(name, not_as=pids))
    say(f"{name} was started again and is back after {back.total_seconds():.2f} s")


@asynccontextmanager
async def _frozen(pids: list[int]) -> AsyncIterator[None]:
    _send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        # Workers first would find a silent supervisor; all at once is what a resumed machine does.
        _send(pids, signal.SIGCONT)


async def leader_freeze(lab: Lab, say: Say, seconds: float) -> None:
    """SIGSTOP for the whole server that leads, for a minute, then SIGCONT."""
    name, before = await _who_leads(lab)
    counted = await _counted(lab, name)
    pids = lab.tree(name)
    async with _frozen(pids):
        began = _CLOCK.now()
        say(f"froze {name}, which led term {before.term}: {len(pids)} processes, SIGSTOP")
        took = await until("another server leading", lambda: (found := lab.leader()) and found[1].term > before.term)
        after, reign = await _who_leads(lab)
        say(f"{after} leads after {took.total_seconds():.2f} s, term {reign.term}")
        _promise(
            took <= TTL + Duration(seconds=1), f"a new leader within {(TTL + Duration(seconds=1)).total_seconds():g} s"
        )
        accepted = await lab.accepted(name)
        await asyncio.sleep(max(0.0, seconds - (_CLOCK.now() - began).total_seconds()))
        asleep = _CLOCK.now() - began
    woken = await _woken(lab, name, counted)
    late = await lab.accepted(name) - accepted
    say(
        f"old leader woke after {asleep.total_seconds():.0f} s, tried {woken.refused - counted.refused} writes, "
        f"{late} accepted: {woken.reason or 'it looked first, and did not try'}"
    )
    _promise(late == 0, "no write of an old term is accepted")
    _promise(lab.leading(after) is not None, f"{after} went on leading")


async def _counted(lab: Lab, name: str) -> Counts:
    counts = await lab.counts(name)
    if counts is None:
        raise Broken(f"the writer of {name} does not answer: wait until holdfast status is healthy")
    return counts


async def _woken(lab: Lab, name: str, before: Counts) -> Counts:
    """Waits until the woken server has understood that it does not lead, and what it had in hand was answered."""
    began: Instant = _CLOCK.now()
    while (asleep := _CLOCK.now() - began) < _PATIENCE:
        counts = await lab.counts(name)
        understood = counts is not None and lab.leading(name) is None and not counts.believes
        if counts is not None and understood and (counts.refused > before.refused or asleep > _ANSWERED):
            return counts
        await asyncio.sleep(0.1)
    raise Broken(f"{name} did not come back to its senses within {_PATIENCE.total_seconds():g} s")


async def etcd_restart(lab: Lab, say: Say, seconds: float) -> None:
    """SIGKILL for etcd; it is started again on the same data."""
    name, before = await _who_leads(lab)
    counted = {server: await _counted(lab, server) for server in fleet.SERVERS}
    pid = lab.etcd_pid()
    pulses = {server: lab.tree(server) for server in fleet.SERVERS}
    os.kill(pid, signal.SIGKILL)
    say(f"killed etcd (pid {pid}) while {name} led term {before.term}")
    took = await until("etcd coming back", lambda: lab.etcd_pid() != pid)
    say(f"etcd was started again after {took.total_seconds():.2f} s, on the same data")
    working = await until("somebody leading and writing", lambda: lab.leader())
    after, reign = await _who_leads(lab)
    await _writes_again(lab, after, counted[after])
    kept = "the same term" if reign.term == before.term else f"term {reign.term}"
    say(f"{after} writes again {(took + working).total_seconds():.2f} s after the kill, {kept}")
    restarted = [server for server in fleet.SERVERS if set(pulses[server]) != set(lab.tree(server))]
    _promise(not restarted, "no server process restarts because the store is away")


async def _writes_again(lab: Lab, name: str, before: Counts) -> None:
    began = _CLOCK.now()
    while _CLOCK.now() - began < _PATIENCE:
        counts = await lab.counts(name)
        if counts is not None and counts.accepted > before.accepted:
            return
        await asyncio.sleep(0.05)
    raise Broken(f"{name} did not write again within {_PATIENCE.total_seconds():g} s")


def _promise(kept: bool, what: str) -> None:
    if not kept:
        raise Broken(f"the promise was broken: {what}")


Scene = Callable[[Lab, Say, float], Awaitable[None]]

SCENES: Mapping[str, Scene] = {
    "leader-kill": leader_kill,
    "leader-freeze": leader_freeze,
    "etcd-restart": etcd_restart,
}
