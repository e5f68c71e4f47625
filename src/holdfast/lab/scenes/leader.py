"""Scenes of leadership: the leader is killed or frozen, and etcd is killed.

Each scene prints what it did, what happened and how long that took, and checks a promise. Nothing is assumed: the
leader is read from the boards, writes from the writers' own counts and from etcd.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from holdfast.lab.fleet import layout
from holdfast.lab.fleet.fenced_writer import WriterCounts
from holdfast.lab.scenes.stage import CLOCK, PATIENCE, Lab, Say, Scene, limit_s, obtain, promise, send, until
from holdfast.model.base.time import Duration
from holdfast.server.election.leadership import Leading

TTL = Duration(seconds=5)
_TAKEOVER = TTL + Duration(seconds=3)
"""A silent leader is replaced within its TTL and a second; the rest is for a busy machine."""
_ANSWERED = Duration(seconds=5)
"""A write that a process had prepared when it was frozen is answered within this time after it wakes."""


async def _leader(lab: Lab) -> tuple[str, Leading]:
    async def read() -> tuple[str, Leading] | None:
        return lab.leader()

    return await obtain("a leader", read)


async def _takeover(lab: Lab, say: Say, before: Leading) -> str:
    """Wait for a leader with a higher term, and return its name."""
    took = await until("another server to lead", lambda: (found := lab.leader()) and found[1].term > before.term)
    name, leading = await _leader(lab)
    say(f"{name} leads after {took.total_seconds():.2f} s, term {leading.term}")
    promise(took <= _TAKEOVER, f"a new leader within {_TAKEOVER.total_seconds():g} s")
    return name


async def leader_kill(lab: Lab, say: Say, seconds: float) -> None:
    """Kill all processes of the leading server (SIGKILL)."""
    name, before = await _leader(lab)
    pids = lab.tree(name)
    send(pids, signal.SIGKILL)
    say(f"killed {name}, leader of term {before.term}: {len(pids)} processes, SIGKILL")
    await _takeover(lab, say, before)
    back = await until(f"{name} to come back", lambda: lab.is_up(name, not_as=pids))
    say(f"{name} was restarted and is back after {back.total_seconds():.2f} s")


@asynccontextmanager
async def _frozen(pids: list[int]) -> AsyncIterator[None]:
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        # All at once, as a resumed machine does: workers that wake first would find a silent supervisor.
        send(pids, signal.SIGCONT)


async def leader_freeze(lab: Lab, say: Say, seconds: float) -> None:
    """Freeze all processes of the leading server for --seconds (SIGSTOP, SIGCONT)."""
    name, before = await _leader(lab)
    counted = await _writer_counts(lab, name)
    pids = lab.tree(name)
    async with _frozen(pids):
        began = CLOCK.now()
        say(f"froze {name}, leader of term {before.term}: {len(pids)} processes, SIGSTOP")
        successor = await _takeover(lab, say, before)
        accepted = await lab.accepted(name)
        await asyncio.sleep(max(0.0, seconds - (CLOCK.now() - began).total_seconds()))
        frozen = CLOCK.now() - began
    woken = await _stepped_down(lab, name, counted)
    late = await lab.accepted(name) - accepted
    tried = woken.refused - counted.refused
    say(
        f"{name} woke after {frozen.total_seconds():.0f} s and tried {tried} {'write' if tried == 1 else 'writes'}, "
        f"{late} accepted: {woken.reason or 'it checked its lease first, and did not try'}"
    )
    promise(late == 0, "no write of an old term is accepted")
    promise(lab.leading(successor) is not None, f"{successor} still leads")


async def _writer_counts(lab: Lab, name: str) -> WriterCounts:
    return await obtain(f"an answer from the writer of {name}", lambda: lab.writer_counts(name))


async def _stepped_down(lab: Lab, name: str, before: WriterCounts) -> WriterCounts:
    """Wait until the woken server knows that it does not lead, and the write that it had prepared was answered."""
    began = CLOCK.now()

    async def read() -> WriterCounts | None:
        counts = await lab.writer_counts(name)
        if counts is None or lab.leading(name) is not None or counts.assumed_term:
            return None
        is_answered = counts.refused > before.refused or CLOCK.now() - began > _ANSWERED
        return counts if is_answered else None

    return await obtain(f"{name} to step down", read)


async def etcd_restart(lab: Lab, say: Say, seconds: float) -> None:
    """Kill etcd (SIGKILL); the lab restarts it on the same data."""
    name, before = await _leader(lab)
    counted = {server: await _writer_counts(lab, server) for server in layout.SERVERS}
    pid = lab.etcd_pid()
    trees = {server: lab.tree(server) for server in layout.SERVERS}
    os.kill(pid, signal.SIGKILL)
    say(f"killed etcd (pid {pid}) while {name} led term {before.term}")
    took = await until("etcd to come back", lambda: lab.etcd_pid() != pid)
    say(f"etcd was restarted after {took.total_seconds():.2f} s, on the same data")
    led = await until("a leader", lab.leader)
    after, leading = await _leader(lab)
    await until(f"{after} to write again", lambda: _has_written(lab, after, counted[after]))
    term = "the same term" if leading.term == before.term else f"term {leading.term}"
    say(f"{after} writes again {(took + led).total_seconds():.2f} s after the kill, {term}")
    restarted = [server for server in layout.SERVERS if set(trees[server]) != set(lab.tree(server))]
    promise(not restarted, "no server process restarts because the store is unreachable")


async def _has_written(lab: Lab, name: str, before: WriterCounts) -> bool:
    counts = await lab.writer_counts(name)
    return counts is not None and counts.accepted > before.accepted


SCENES: Mapping[str, Scene] = {
    "leader-kill": Scene(
        leader_kill,
        promise="another server leads, and the killed one comes back",
        limit=f"a new leader within {limit_s(_TAKEOVER)}: a lease is {limit_s(TTL)}, the rest is for a busy machine",
    ),
    "leader-freeze": Scene(
        leader_freeze,
        promise="another server leads; when the old leader wakes, none of its late writes is accepted",
        limit=f"a new leader within {limit_s(_TAKEOVER)}; 0 writes of an old term, as etcd counts them",
    ),
    "etcd-restart": Scene(
        etcd_restart,
        promise="the leader writes again, and no server process restarts because etcd is away",
        limit=f"each step within {limit_s(PATIENCE)}; 0 restarts",
    ),
}
