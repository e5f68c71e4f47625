"""Scenes of the agent: it is killed, a host is deleted while it is down, a deleted host's addresses get a new owner.

The file that stands for a host's kernel counts every change made to it, and the scene samples it all the time while the
agent is down and while it comes back, so that an object that is missing for a moment is noticed. Each scene adds a host
of its own to the inventory and deletes it at the end.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.agent.claims import ClaimKey, RemoteRoute, Shape, nexthop, route
from holdfast.agent.dataplane.file import load
from holdfast.lab.fleet import layout
from holdfast.lab.fleet.agents import ROLE
from holdfast.lab.scenes.stage import (
    PATIENCE,
    Lab,
    NotInThisLab,
    Say,
    Scene,
    limit_s,
    obtain,
    promise,
    send,
    until,
)
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.agent_status import AGENT_STATUS
from holdfast.model.calico.host import HOST
from holdfast.store.api import Entry

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.inventory.changes import WantedObject

_NEW_HOST, _REPLACEMENT = "r9-01", "r9-02"
_NUMBER = 99
_PREFIXES = tuple(f"10.28.{_NUMBER}.{index}/32" for index in (1, 2, 3))
_SAMPLE = Duration(milliseconds=10)


@dataclass(frozen=True, slots=True)
class LabAgent:
    """One agent of a running lab and its kernel, seen from outside."""

    lab: Lab
    host: str

    @property
    def state(self) -> Path:
        return self.lab.state

    def kernel(self) -> Mapping[ClaimKey, Shape]:
        return {one.key: one.shape for one in load(layout.kernel_file(self.state, self.host)).objects}

    def has_routes(self) -> bool:
        """Return True if the prefixes of the scene's host are programmed."""
        return _keys(_PREFIXES) <= self.kernel().keys()

    def changes(self) -> int:
        return load(layout.kernel_file(self.state, self.host)).changes

    def has_programmed(self, hosts: Sequence[str]) -> bool:
        """Return True if it has a route to every workload of each of these hosts."""
        indexes = range(1, len(layout.WORKLOADS) + 1)
        wanted = {route(f"10.28.{number}.{index}/32") for number, _ in enumerate(hosts, 1) for index in indexes}
        return wanted <= self.kernel().keys()

    def kill(self) -> list[int]:
        pids = self.lab.tree(self.host, ROLE)
        send(pids, signal.SIGKILL)
        return pids

    def is_up(self, not_as: Collection[int]) -> bool:
        return self.lab.is_up(self.host, ROLE, not_as=not_as)

    async def owners(self) -> set[str]:
        """Return the hosts of which the agent reports programmed objects."""
        answer = await self.lab.ask(f"{self.host}/{ROLE}", "peers", "peers")
        return set() if answer.error else {one["host"] for one in answer.result if one["wanted"]}

    @asynccontextmanager
    async def kept_down(self) -> AsyncIterator[list[int]]:
        """Kill the agent, and do not restart it before the block ends."""
        marker = layout.down_file(self.state, self.host)
        marker.touch()
        try:
            yield self.kill()
        finally:
            marker.unlink()


@dataclass
class Gaps:
    """Samples a kernel all the time, and collects the keys that were ever missing."""

    agent: LabAgent
    watched: Collection[ClaimKey]
    samples: int = 0
    missing: set[ClaimKey] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            self.missing |= set(self.watched) - self.agent.kernel().keys()
            self.samples += 1
            await asyncio.sleep(_SAMPLE.total_seconds())


@asynccontextmanager
async def watched(agent: LabAgent, keys: Collection[ClaimKey]) -> AsyncIterator[Gaps]:
    """Sample these keys for the length of the block."""
    gaps = Gaps(agent, keys)
    task = asyncio.create_task(gaps.run())
    try:
        yield gaps
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _victim(lab: Lab) -> LabAgent:
    """Return an agent of this lab that is up and has programmed its peers."""
    hosts = layout.hosts(lab.state)
    on_files = [host for host in hosts[1:] if host not in layout.namespaces(lab.state)]
    if not on_files:
        raise NotInThisLab(
            "all hosts of this lab are on the kernel: try agent-kill-under-traffic, or start it with --hosts 6"
        )
    agent = LabAgent(lab, on_files[0])
    await until(f"the agent of {agent.host}", lambda: agent.is_up(()))
    await until(f"the agent of {agent.host} to program its peers", lambda: agent.has_programmed(hosts))
    await _deleted(agent, f"{agent.host} to delete the objects of an earlier scene (see holdfast plan syncer)")
    return agent


async def _deleted(agent: LabAgent, what: str) -> tuple[Duration, int]:
    """Wait until everything of a scene's host is deleted; return how long that took, and how many deletes the agents'
    brakes held. To an agent of a small fleet the deletes of two scenes within a minute are more than half of all."""
    held = 0

    async def is_deleted() -> bool:
        nonlocal held
        await agent.lab.release_brake()
        held += await agent.lab.release_agents()
        return not _added_keys() & agent.kernel().keys()

    return await until(what, is_deleted), held


def _host(name: str, prefixes: Sequence[str], workloads: str = "guest") -> list[WantedObject]:
    """Return a host on the scene's underlay address, with one workload for each of these prefixes."""
    from holdfast.lab.fleet import seed

    return [
        seed.host(name, _NUMBER),
        *(seed.endpoint(name, f"{workloads}-{index}", prefix) for index, prefix in enumerate(prefixes, 1)),
    ]


@asynccontextmanager
async def _added_host(agent: LabAgent, say: Say) -> AsyncIterator[list[WantedObject]]:
    """Add a host, wait until the agent has programmed it, and delete it after the block."""
    from holdfast.lab.fleet import seed

    added = _host(_NEW_HOST, _PREFIXES)
    seed.change(agent.state, added, "lab break")
    try:
        await until(f"{_NEW_HOST} to be programmed", agent.has_routes)
        say(f"added {_NEW_HOST} with {len(_PREFIXES)} workloads; {agent.host} has {len(agent.kernel())} objects")
        yield added
    finally:
        _clean_up(agent)


def _clean_up(agent: LabAgent) -> None:
    """Delete everything that a scene may have added to the inventory."""
    from holdfast.lab.fleet import seed

    added = [
        *_host(_NEW_HOST, _PREFIXES),
        *_host(_REPLACEMENT, _PREFIXES, "replacement"),
        *_host("r1-01", _PREFIXES, "moved")[1:],
    ]
    seed.change(agent.state, [seed.deleted(one) for one in added], "end of lab break")


def _added_keys() -> set[ClaimKey]:
    """Return the keys that the hosts of a scene occupy in the other hosts' kernels."""
    from holdfast.lab.fleet import seed

    return {*_keys(_PREFIXES), *_keys([f"{seed.tunnel(_NUMBER)}/32"]), nexthop(seed.underlay(_NUMBER))}


def _keys(prefixes: Sequence[str]) -> set[ClaimKey]:
    return {route(prefix) for prefix in prefixes}


async def _stored(lab: Lab, key: bytes) -> Entry | None:
    async with lab.store() as store:
        return await store.get(key)


async def _deleted_from_store(lab: Lab, host: str) -> None:
    async def is_gone() -> bool:
        await lab.release_brake()
        return await _stored(lab, HOST.key(Region(), host)) is None

    await until(f"{host} to be deleted from the store (see holdfast status)", is_gone)


async def _status(agent: LabAgent) -> Entry | None:
    return await _stored(agent.lab, AGENT_STATUS.key(Region(), agent.host))


async def agent_kill(lab: Lab, say: Say, seconds: float) -> None:
    """Kill an agent (SIGKILL), and add a host while it is down."""
    from holdfast.lab.fleet import seed

    agent = await _victim(lab)
    # An agent that has just started programs its peers before its first report.
    status = await obtain(f"a report of the agent of {agent.host}", lambda: _status(agent))
    before, changes = agent.kernel(), agent.changes()
    async with watched(agent, before.keys()) as gaps:
        pids = agent.kill()
        say(f"killed the agent of {agent.host}: {len(pids)} processes, SIGKILL; {len(before)} objects were programmed")
        try:
            seed.change(agent.state, _host(_NEW_HOST, _PREFIXES), "lab break agent-kill")
            say(f"added {_NEW_HOST} with {len(_PREFIXES)} workloads while the agent is down")
            back = await until("the agent to come back", lambda: agent.is_up(pids))
            took = await until(f"{_NEW_HOST} to be programmed", agent.has_routes)
            added = len(agent.kernel()) - len(before)
            made = agent.changes() - changes
            say(
                f"it is back after {back.total_seconds():.2f} s and has caught up {took.total_seconds():.2f} s later: "
                f"{added} new objects, {made} kernel changes in all"
            )
        finally:
            _clean_up(agent)
    still = await _status(agent)
    say(f"{len(gaps.missing)} objects were ever missing in {gaps.samples:,} samples")
    promise(made == added, "a restart changes nothing in the kernel but what was added meanwhile")
    promise(not gaps.missing, f"nothing is missing in the kernel, but {_first(gaps.missing)} was")
    same = still is not None and status.create_revision == still.create_revision
    promise(same, f"{agent.host} counts as alive all the time: a restart is not an outage")


async def host_deleted_while_agent_down(lab: Lab, say: Say, seconds: float) -> None:
    """Delete a host while an agent is down, so that the agent misses the event."""
    from holdfast.lab.fleet import seed

    agent = await _victim(lab)
    async with _added_host(agent, say) as added:
        others = agent.kernel().keys() - _added_keys()
        before = len(agent.kernel())
        async with watched(agent, others) as gaps:
            async with agent.kept_down() as pids:
                say(f"killed the agent of {agent.host} and kept it down; its journal has {before} objects")
                seed.change(agent.state, [seed.deleted(one) for one in added], "decommissioned")
                await _deleted_from_store(lab, _NEW_HOST)
                say(f"deleted {_NEW_HOST} from the inventory and the store while no agent was watching")
                promise(len(agent.kernel()) == before, "the kernel of a dead agent stays as it was")
            back = await until("the agent to come back", lambda: agent.is_up(pids))
            took, held = await _deleted(agent, f"the objects of {_NEW_HOST} to be deleted")
        say(
            f"the agent is back after {back.total_seconds():.2f} s; {took.total_seconds():.2f} s later the "
            f"{before - len(others)} objects of {_NEW_HOST} are deleted; {len(gaps.missing)} of the {len(others)} "
            f"others were ever missing in {gaps.samples:,} samples"
        )
        if held:
            say(f"the agents' brakes held {held} of these deletes, until they were released as by an operator")
        promise(not gaps.missing, f"no object of a live host is deleted, but {_first(gaps.missing)} was")


async def ip_reuse(lab: Lab, say: Say, seconds: float) -> None:
    """Delete a host while an agent is down, and give its address and prefixes to new owners."""
    from holdfast.lab.fleet import seed

    agent = await _victim(lab)
    kept, moved = _PREFIXES[:2], _PREFIXES[2]
    async with _added_host(agent, say) as added:
        changes, everything = agent.changes(), agent.kernel()
        async with watched(agent, everything.keys()) as gaps:
            async with agent.kept_down() as pids:
                say(f"killed the agent of {agent.host} and kept it down")
                # One edit, deletes first: the addresses change their owner without ever being free.
                new = [*_host(_REPLACEMENT, kept, "replacement"), seed.endpoint("r1-01", "moved-1", moved)]
                seed.change(agent.state, [*(seed.deleted(one) for one in added), *new], "the address is reused")
                await _deleted_from_store(lab, _NEW_HOST)
                say(
                    f"deleted {_NEW_HOST}; {_REPLACEMENT} has its address {seed.underlay(_NUMBER)} and {len(kept)} of "
                    f"its prefixes, r1-01 has the third"
                )
            back = await until("the agent to come back", lambda: agent.is_up(pids))
            took = await until(f"{moved} to move to r1-01", lambda: _leads_to(agent, moved, "r1-01"))
            await until(f"{agent.host} to know {_REPLACEMENT} as the owner", lambda: _is_replaced(agent))
        made = agent.changes() - changes
        say(
            f"the agent is back after {back.total_seconds():.2f} s; {took.total_seconds():.2f} s later everything has "
            f"its new owner: {made} kernel change{'s' * (made != 1)}; {len(gaps.missing)} of {len(everything)} objects "
            f"were ever missing in {gaps.samples:,} samples"
        )
        promise(
            not gaps.missing,
            f"an object of a live owner is never deleted for a dead one, but {_first(gaps.missing)} was",
        )
        promise(made == 1, "only the prefix with a new next hop is changed in the kernel")


def _leads_to(agent: LabAgent, prefix: str, host: str) -> bool:
    """Return True if that prefix has the same next hop as the first workload of that host."""
    kernel, number = agent.kernel(), int(host.rpartition("-")[2])
    shape = kernel.get(route(f"10.28.{number}.1/32"))
    return isinstance(shape, RemoteRoute) and kernel.get(route(prefix)) == shape


async def _is_replaced(agent: LabAgent) -> bool:
    owners = await agent.owners()
    return _REPLACEMENT in owners and _NEW_HOST not in owners


def _first(keys: Collection[ClaimKey]) -> str:
    return str(min(keys, default="nothing"))


SCENES: Mapping[str, Scene] = {
    "agent-kill": Scene(
        agent_kill,
        promise="a restart changes nothing in the host's kernel but what was added meanwhile; its host stays alive",
        limit=f"0 objects missing, sampled every {_SAMPLE.total_seconds() * 1000:g} ms",
    ),
    "node-gone-while-agent-down": Scene(
        host_deleted_while_agent_down,
        promise="an agent that missed the deletion of a host deletes that host's objects, and no others",
        limit=f"within {limit_s(PATIENCE)} of its return; 0 objects of live hosts missing",
    ),
    "ip-reuse": Scene(
        ip_reuse,
        promise="addresses that got a new owner while the agent was down are never deleted for the old one",
        limit="0 objects missing; 1 kernel change, for the prefix with a new next hop",
    ),
}
