"""Scenes: what the field does to a control plane, done to the lab, and what came of it.

Each scene says what it did, what happened, how long that took, and whether the promise was kept. Nothing is assumed:
leadership is read from the boards, the writes from the writers' own counts and from etcd's history.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from holdfast.lab.fleet import fleet
from holdfast.lab.fleet.fenced_writer import WriterCounts
from holdfast.lab.scenes import agent as agent_scenes
from holdfast.lab.scenes import balancer as balancer_scenes
from holdfast.lab.scenes import host as host_scenes
from holdfast.lab.scenes import inventory as inventory_scenes
from holdfast.lab.scenes import status as status_scenes
from holdfast.lab.scenes.stage import CLOCK, PATIENCE, Broken, Lab, Say, Scene, promise, send, until
from holdfast.model.base.time import Duration, Instant
from holdfast.server.election.leadership import Leading

TTL = Duration(seconds=5)
_LED = TTL + Duration(seconds=3)
"""A leader that fell silent is succeeded within its TTL and a second; the rest is for a busy machine."""
_ANSWERED = Duration(seconds=5)
"""By then a write that was in hand when its process woke has been answered."""


async def _who_leads(lab: Lab) -> tuple[str, Leading]:
    found: list[tuple[str, Leading]] = []

    def look() -> bool:
        found[:] = filter(None, [lab.leader()])
        return bool(found)

    await until("somebody leading", look)
    return found[0]


async def leader_kill(lab: Lab, say: Say, seconds: float) -> None:
    """SIGKILL for the whole server that leads."""
    name, before = await _who_leads(lab)
    pids = lab.tree(name)
    send(pids, signal.SIGKILL)
    say(f"killed {name}, which led term {before.term}: {len(pids)} processes, SIGKILL")
    took = await until("another server leading", lambda: (found := lab.leader()) and found[1].term > before.term)
    after, reign = await _who_leads(lab)
    say(f"{after} leads after {took.total_seconds():.2f} s, term {reign.term}")
    promise(took <= _LED, f"a new leader within {_LED.total_seconds():g} s")
    back = await until(f"{name} coming back", lambda: lab.is_up(name, not_as=pids))
    say(f"{name} was started again and is back after {back.total_seconds():.2f} s")


@asynccontextmanager
async def _frozen(pids: list[int]) -> AsyncIterator[None]:
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        # Workers first would find a silent supervisor; all at once is what a resumed machine does.
        send(pids, signal.SIGCONT)


async def leader_freeze(lab: Lab, say: Say, seconds: float) -> None:
    """SIGSTOP for the whole server that leads, for a minute, then SIGCONT."""
    name, before = await _who_leads(lab)
    counted = await _counted(lab, name)
    pids = lab.tree(name)
    async with _frozen(pids):
        began = CLOCK.now()
        say(f"froze {name}, which led term {before.term}: {len(pids)} processes, SIGSTOP")
        took = await until("another server leading", lambda: (found := lab.leader()) and found[1].term > before.term)
        after, reign = await _who_leads(lab)
        say(f"{after} leads after {took.total_seconds():.2f} s, term {reign.term}")
        promise(took <= _LED, f"a new leader within {_LED.total_seconds():g} s")
        accepted = await lab.accepted(name)
        await asyncio.sleep(max(0.0, seconds - (CLOCK.now() - began).total_seconds()))
        asleep = CLOCK.now() - began
    woken = await _woken(lab, name, counted)
    late = await lab.accepted(name) - accepted
    say(
        f"old leader woke after {asleep.total_seconds():.0f} s, tried {woken.refused - counted.refused} writes, "
        f"{late} accepted: {woken.reason or 'it looked first, and did not try'}"
    )
    promise(late == 0, "no write of an old term is accepted")
    promise(lab.leading(after) is not None, f"{after} went on leading")


async def _counted(lab: Lab, name: str) -> WriterCounts:
    began = CLOCK.now()
    while (counts := await lab.counts(name)) is None:
        if CLOCK.now() - began > PATIENCE:
            raise Broken(f"the writer of {name} does not answer: wait until holdfast status is healthy")
        await asyncio.sleep(0.1)
    return counts


async def _woken(lab: Lab, name: str, before: WriterCounts) -> WriterCounts:
    """Waits until the woken server has understood that it does not lead, and what it had in hand was answered."""
    began: Instant = CLOCK.now()
    while (asleep := CLOCK.now() - began) < PATIENCE:
        counts = await lab.counts(name)
        understood = counts is not None and lab.leading(name) is None and not counts.believes
        if counts is not None and understood and (counts.refused > before.refused or asleep > _ANSWERED):
            return counts
        await asyncio.sleep(0.1)
    raise Broken(f"{name} did not come back to its senses within {PATIENCE.total_seconds():g} s")


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
    promise(not restarted, "no server process restarts because the store is away")


async def _writes_again(lab: Lab, name: str, before: WriterCounts) -> None:
    began = CLOCK.now()
    while CLOCK.now() - began < PATIENCE:
        counts = await lab.counts(name)
        if counts is not None and counts.accepted > before.accepted:
            return
        await asyncio.sleep(0.05)
    raise Broken(f"{name} did not write again within {PATIENCE.total_seconds():g} s")


SCENES: Mapping[str, Scene] = {
    "leader-kill": leader_kill,
    "leader-freeze": leader_freeze,
    "etcd-restart": etcd_restart,
    **balancer_scenes.SCENES,
    **inventory_scenes.SCENES,
    **agent_scenes.SCENES,
    **host_scenes.SCENES,
    **status_scenes.SCENES,
}
