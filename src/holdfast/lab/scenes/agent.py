"""Scenes of the agent: it dies, a host goes while it is down, a dead host's addresses get a new owner.

The file that stands for a host's kernel counts every change that was made to it, and is looked at again and again while
the agent is away and while it comes back: what the promise is about is never missing in between. Each scene brings the
host that it is about, and takes it away again.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.agent.claims import ClaimKey, RemoteRoute, Shape, nexthop, route
from holdfast.agent.dataplane.file import load
from holdfast.lab.fleet import fleet, inventory, netns
from holdfast.lab.fleet.agents import ROLE, held_file, kernel_file
from holdfast.lab.scenes.stage import CLOCK, PATIENCE, Broken, Lab, Say, Scene, promise, send, until
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.agent_status import AGENT_STATUS
from holdfast.model.calico.host import HOST
from holdfast.runtime.control import Request, ask
from holdfast.store.api import Entry
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection

if TYPE_CHECKING:
    from holdfast.inventory.changes import WantedObject

_GUEST, _HEIR = "r9-01", "r9-02"
_NUMBER = 99
_PREFIXES = tuple(f"10.28.{_NUMBER}.{place}/32" for place in (1, 2, 3))
_SAMPLE = Duration(milliseconds=10)


@dataclass(frozen=True, slots=True)
class LabAgent:
    """One agent of a running lab and its kernel, seen from outside."""

    lab: Lab
    host: str

    @property
    def state(self) -> Path:
        return self.lab.folder / "state"

    def kernel(self) -> Mapping[ClaimKey, Shape]:
        return {one.key: one.shape for one in load(kernel_file(self.state, self.host)).objects}

    def changes(self) -> int:
        return load(kernel_file(self.state, self.host)).changes

    def has_programmed(self, hosts: Sequence[str]) -> bool:
        """Whether it has a route to every workload of each of these."""
        places = range(1, len(inventory.WORKLOADS) + 1)
        wanted = {route(f"10.28.{number}.{place}/32") for number, _ in enumerate(hosts, 1) for place in places}
        return wanted <= self.kernel().keys()

    def kill(self) -> list[int]:
        pids = self.lab.tree(self.host, ROLE)
        send(pids, signal.SIGKILL)
        return pids

    def is_up(self, not_as: Collection[int]) -> bool:
        return self.lab.is_up(self.host, ROLE, not_as=not_as)

    async def owners(self) -> set[str]:
        """The hosts of which something is programmed, by the agent's own word."""
        path = self.lab.folder / "run" / self.host / f"{ROLE}.sock"
        said = await ask(path, Request("tell", {"do": "peers"}, "peers"))
        return set() if said.error else {one["host"] for one in said.result if one["wanted"]}

    @asynccontextmanager
    async def held_down(self) -> AsyncIterator[list[int]]:
        """Killed, and not started again inside the block."""
        mark = held_file(self.state, self.host)
        mark.touch()
        try:
            yield self.kill()
        finally:
            mark.unlink()


@dataclass
class Gaps:
    """Looks at a kernel all the time, and counts how often something was missing."""

    agent: LabAgent
    watched: Collection[ClaimKey]
    looks: int = 0
    missing: set[ClaimKey] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            self.missing |= set(self.watched) - self.agent.kernel().keys()
            self.looks += 1
            await asyncio.sleep(_SAMPLE.total_seconds())


@asynccontextmanager
async def watched(agent: LabAgent, keys: Collection[ClaimKey]) -> AsyncIterator[Gaps]:
    """Inside the block these are looked at; nothing of them may ever be missing."""
    gaps = Gaps(agent, keys)
    task = asyncio.create_task(gaps.run())
    try:
        yield gaps
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _victim(lab: Lab) -> LabAgent:
    """An agent of this lab that is up and has programmed its peers."""
    hosts = inventory.hosts(lab.folder / "state")
    in_files = [host for host in hosts[1:] if host not in netns.namespaces(lab.folder / "state")]
    if not in_files:
        raise Broken("all hosts of this lab are on the kernel: try agent-traffic, or give it more (--hosts 6)")
    agent = LabAgent(lab, in_files[0])
    await until(f"the agent of {agent.host} being up", lambda: agent.is_up(()))
    await until(f"the agent of {agent.host} having programmed its peers", lambda: agent.has_programmed(hosts))
    # They are on their way out when a scene is over. In a small fleet the syncer's brake may hold them for a minute.
    left = f"the hosts of an earlier scene leaving {agent.host} (holdfast plan syncer tells what holds them)"
    await until(left, lambda: not _brought() & agent.kernel().keys(), 2 * PATIENCE)
    return agent


def guest(name: str, prefixes: Sequence[str], workloads: str = "guest") -> list[WantedObject]:
    """A host on a fixed address, with one workload for each of these prefixes."""
    from holdfast.lab.fleet import seed as seeding

    return [
        seeding.host(name, _NUMBER),
        *(seeding.endpoint(name, f"{workloads}-{place}", prefix) for place, prefix in enumerate(prefixes, 1)),
    ]


@asynccontextmanager
async def _visit(agent: LabAgent, say: Say) -> AsyncIterator[list[WantedObject]]:
    """A host joins, is programmed at the agent, and is not there any more after the block."""
    from holdfast.lab.fleet import seed as seeding

    joins = guest(_GUEST, _PREFIXES)
    seeding.change(agent.state, joins, "lab break")
    try:
        await until(f"{_GUEST} being programmed", lambda: _keys(_PREFIXES) <= agent.kernel().keys())
        say(f"{_GUEST} joined with {len(_PREFIXES)} workloads; {agent.host} has {len(agent.kernel())} objects")
        yield joins
    finally:
        seeding.change(agent.state, _leaving(agent.state), "lab break is over")


def _leaving(state: Path) -> list[WantedObject]:
    """The wish that nothing of the scenes' hosts is left."""
    from holdfast.lab.fleet import seed as seeding

    all_of_them = [*guest(_GUEST, _PREFIXES), *guest(_HEIR, _PREFIXES, "heir"), *guest("r1-01", _PREFIXES, "moved")[1:]]
    return [seeding.gone(one) for one in all_of_them]


def _brought() -> set[ClaimKey]:
    """What the hosts of a scene occupy in the others' kernels."""
    from holdfast.lab.fleet import seed as seeding

    return {*_keys(_PREFIXES), nexthop(seeding.underlay(_NUMBER))}


def _keys(prefixes: Sequence[str]) -> set[ClaimKey]:
    return {route(prefix) for prefix in prefixes}


async def _in_store(lab: Lab, key: bytes) -> Entry | None:
    url = fleet.endpoint(lab.folder / "state")
    if url is None:
        raise Broken("the lab's etcd has not been started yet")
    store = EtcdStore(Connection((url,)))
    try:
        return await store.get(key)
    finally:
        await store.close()


async def _gone_from_store(lab: Lab, host: str) -> None:
    for _ in range(600):
        if await _in_store(lab, HOST.key(Region(), host)) is None:
            return
        await asyncio.sleep(0.1)
    raise Broken(f"{host} was not deleted from the store within 60 s: is the syncer held? (holdfast status)")


async def _alive(agent: LabAgent) -> Entry | None:
    return await _in_store(agent.lab, AGENT_STATUS.key(Region(), agent.host))


async def _reported(agent: LabAgent) -> Entry:
    """What it says of itself. An agent that was started just now programs its peers before its first report."""
    latest = CLOCK.now() + PATIENCE
    while (said := await _alive(agent)) is None:
        if CLOCK.now() > latest:
            raise Broken(f"the agent of {agent.host} did not report within {PATIENCE.total_seconds():g} s")
        await asyncio.sleep(0.1)
    return said


async def agent_kill(lab: Lab, say: Say, seconds: float) -> None:
    """SIGKILL for a whole agent; a host joins while it is away."""
    from holdfast.lab.fleet import seed as seeding

    agent = await _victim(lab)
    alive, before, changes = await _reported(agent), agent.kernel(), agent.changes()
    async with watched(agent, before.keys()) as gaps:
        pids = agent.kill()
        say(f"killed the agent of {agent.host}: {len(pids)} processes, SIGKILL; {len(before)} objects were programmed")
        try:
            seeding.change(agent.state, guest(_GUEST, _PREFIXES), "lab break agent-kill")
            say(f"{_GUEST} joined with {len(_PREFIXES)} workloads meanwhile")
            back = await until("the agent coming back", lambda: agent.is_up(pids))
            took = await until(f"{_GUEST} being programmed", lambda: _keys(_PREFIXES) <= agent.kernel().keys())
            joined = len(agent.kernel()) - len(before)
            made = agent.changes() - changes
            say(
                f"it is back after {back.total_seconds():.2f} s and has what it missed {took.total_seconds():.2f} s "
                f"later: {joined} objects new, {made} kernel changes in all"
            )
        finally:
            seeding.change(agent.state, _leaving(agent.state), "lab break is over")
    still = await _alive(agent)
    say(f"in {gaps.looks:,} looks {len(gaps.missing)} objects were ever missing")
    promise(made == joined, "a restart changes nothing in the kernel but what came meanwhile")
    promise(not gaps.missing, f"nothing is missing in the kernel, but {_first(gaps.missing)} was")
    same = still is not None and alive.create_revision == still.create_revision
    promise(same, f"{agent.host} is alive for the fleet all the time: a restart is not a death")


async def node_gone(lab: Lab, say: Say, seconds: float) -> None:
    """A host is deleted while an agent is down: nobody tells the agent, and it finds out."""
    from holdfast.lab.fleet import seed as seeding

    agent = await _victim(lab)
    async with _visit(agent, say) as joined:
        others = agent.kernel().keys() - _brought()
        before = len(agent.kernel())
        async with watched(agent, others) as gaps:
            async with agent.held_down() as pids:
                say(f"killed the agent of {agent.host} and held it down; it remembers {before} objects")
                seeding.change(agent.state, [seeding.gone(one) for one in joined], "decommissioned")
                await _gone_from_store(lab, _GUEST)
                say(f"{_GUEST} was deleted from the inventory and the store; no agent was there to hear it")
                promise(len(agent.kernel()) == before, "a dead agent's kernel stays as it was")
            back = await until("the agent coming back", lambda: agent.is_up(pids))
            took = await until(f"the objects of {_GUEST} going", lambda: not _keys(_PREFIXES) & agent.kernel().keys())
            await until("all of it being gone", lambda: agent.kernel().keys() <= others)
        say(
            f"the agent is back after {back.total_seconds():.2f} s; {took.total_seconds():.2f} s later the "
            f"{before - len(others)} objects of {_GUEST} are gone; in {gaps.looks:,} looks {len(gaps.missing)} of the "
            f"{len(others)} others were ever missing"
        )
        promise(not gaps.missing, f"nothing of a live host goes, but {_first(gaps.missing)} did")


async def ip_reuse(lab: Lab, say: Say, seconds: float) -> None:
    """While an agent is down a host goes, a new one gets its address, and its prefixes get new owners."""
    from holdfast.lab.fleet import seed as seeding

    agent = await _victim(lab)
    kept, moved = _PREFIXES[:2], _PREFIXES[2]
    async with _visit(agent, say) as joined:
        changes, everything = agent.changes(), agent.kernel()
        async with watched(agent, everything.keys()) as gaps:
            async with agent.held_down() as pids:
                say(f"killed the agent of {agent.host} and held it down")
                # In this order: what goes makes room for what comes, and the addresses are free for nobody in between.
                heirs = [*guest(_HEIR, kept, "heir"), seeding.endpoint("r1-01", "moved-1", moved)]
                seeding.change(agent.state, [*(seeding.gone(one) for one in joined), *heirs], "the address is reused")
                await _gone_from_store(lab, _GUEST)
                say(
                    f"{_GUEST} was deleted; {_HEIR} has its address {seeding.underlay(_NUMBER)} and {len(kept)} of its "
                    f"prefixes, r1-01 has the third"
                )
            back = await until("the agent coming back", lambda: agent.is_up(pids))
            took = await until(f"{moved} moving to r1-01", lambda: _leads_to(agent, moved, "r1-01"))
            await _owned_by(agent, _HEIR)
        made = agent.changes() - changes
        say(
            f"the agent is back after {back.total_seconds():.2f} s; {took.total_seconds():.2f} s later everything has "
            f"its new owner: {made} kernel change{'s' * (made != 1)}, and in {gaps.looks:,} looks {len(gaps.missing)} "
            f"of {len(everything)} objects were ever missing"
        )
        promise(
            not gaps.missing, f"a live owner's state is never deleted for a dead one, but {_first(gaps.missing)} was"
        )
        promise(made == 1, "only the prefix that is reached another way is changed in the kernel")


def _leads_to(agent: LabAgent, prefix: str, host: str) -> bool:
    """Whether that prefix is reached as the first workload of that host is."""
    kernel, number = agent.kernel(), int(host.rpartition("-")[2])
    way = kernel.get(route(f"10.28.{number}.1/32"))
    return isinstance(way, RemoteRoute) and kernel.get(route(prefix)) == way


async def _owned_by(agent: LabAgent, host: str) -> None:
    for _ in range(300):
        owners = await agent.owners()
        if host in owners and _GUEST not in owners:
            return
        await asyncio.sleep(0.2)
    raise Broken(f"the agent of {agent.host} does not know {host} as the owner after 60 s")


def _first(keys: Collection[ClaimKey]) -> str:
    return str(min(keys, default="nothing"))


SCENES: Mapping[str, Scene] = {
    "agent-kill": agent_kill,
    "node-gone-while-agent-down": node_gone,
    "ip-reuse": ip_reuse,
}
