"""The shipped agent beside a store that is restored and wiped, and a leader that notices, refills and is adopted.

The truth is the leader's: workloads that start, move and end, whatever the store holds. The store goes back to an
earlier revision, or is empty; a moment later the leader records its verdict and refills the store, and when it is full
and an operator has agreed, it deletes what is left over and raises the epoch. Meanwhile the agent is killed and cut
off.

- the route of a workload that has been in its place for a while is never removed, nor led to another place;
- at rest, with the store adopted, the kernel has the routes of the truth and no others.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.agent.claims import ClaimKey, LocalRoute, RemoteRoute, Shape, route
from holdfast.model.base.bad import Bad
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.identity import LatchedVerdict
from holdfast.store.api import Entry, Operation, Put
from holdfast.store.identity import StoreVerdict
from holdfast.testing import World
from holdfast.testing.fakes.kernel import FakeKernel
from tests.agent.harness import ME, REGION, Fleet, HostHarness
from tests.sim.agent_scenario import _fast
from tests.sim.election_invariants import InvariantBroken

HOSTS = tuple(f"h{number}" for number in range(1, 5))
WORKLOADS = range(1, 10)
LASTING = 60.0
REST = seconds(120)
SETTLED = 12.0
"""Seconds in one place after which an agent that was cut off has heard of it."""
RESTORED = LatchedVerdict(StoreVerdict.RESTORED.value, "the store went back")


@dataclass(frozen=True, slots=True)
class AgentRestoreResult:
    """Counts of one run."""

    restores: int
    moves: int
    lives: int


@dataclass
class RefilledStore:
    """The leader of one run: its truth, and its store."""

    world: World
    site: HostHarness
    fleet: Fleet
    places: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Workload → its host, and since when."""
    epoch: int = 1
    mark: int = 0
    state: str = ""
    """Verdict on the store: "restored", "filling", or empty."""
    lost: str = ""
    """What happened to the store, before the leader notices."""
    restores: int = 0
    moves: int = 0
    lives: int = 1
    calm: bool = False
    oldest: int = 1
    """First revision with an identity in the present history of the store."""
    shown: dict[ClaimKey, Shape | None] = field(default_factory=dict)

    def edit(self) -> None:
        """A workload starts, moves or ends."""
        random = self.world.random
        workload = random.choice(WORKLOADS)
        if workload in self.places and random.random() < 0.2:
            del self.places[workload]
            return
        to = random.choice([ME, *HOSTS])
        if self.places.get(workload, ("", 0.0))[0] != to:
            self.places[workload] = to, self.world.time
            self.moves += 1

    def lose(self) -> None:
        store, random = self.world.store, self.world.random
        self.restores += 1
        if self.lost == "filling" or random.random() < 0.3:
            self.world.note("the store is wiped")
            store.wipe()
            self.lost = "filling"
            return
        oldest = max(self.oldest, store.keys.compacted, store.revision - random.choice([10, 40, 1_000]))
        revision = random.randint(oldest, store.revision)
        self.world.note(f"the store goes back from revision {store.revision} to {revision}")
        store.restore(revision)
        self.lost = "restored"

    async def lead(self) -> None:
        random = self.world.random
        while True:
            await asyncio.sleep(random.uniform(0.1, 1.0))
            if self.lost:
                await asyncio.sleep(random.choice([0.0, 0.5, 4.0]))
                self._notice()
            lost = self.restores
            for step in list(self._steps(deletes=False)):
                if self.restores == lost:
                    if not self.state:
                        self.mark += 1
                        self.fleet.write(self.fleet.marks(self.mark))
                    self.fleet.write(*step)
                    await asyncio.sleep(random.choice([0.0, 0.0, 0.05]))
            if self.restores == lost and (self.calm or random.random() < 0.1):
                self._finish()

    def _notice(self) -> None:
        """Record the verdict before anything else is written."""
        kept = self.lost
        self.lost, self.state = "", kept
        if kept == "filling":
            self.epoch += 1
            self.mark += 1
            self.fleet.write(self.fleet.marks(self.mark))
            self.fleet.name_it(epoch=self.epoch, filling=True)
            self.oldest = self.world.store.revision
        else:
            self.fleet.name_it(epoch=self.epoch, verdict=RESTORED)
        self.world.note(f"the leader notices: {kept}")

    def _finish(self) -> None:
        """End a verdict when everything is in the store: an operator adopts, or the store is full."""
        if any(self._steps(deletes=False)) or self.lost:
            return
        for step in self._steps(deletes=True):
            self.fleet.write(*step)
        if self.state:
            self.epoch += self.state == "restored"
            self.mark += 1
            self.fleet.write(self.fleet.marks(self.mark))
            self.fleet.name_it(epoch=self.epoch)
            self.oldest = self.world.store.revision
            self.world.note(f"the verdict ends: {self.state}")
        self.state = ""

    def _steps(self, *, deletes: bool) -> Iterator[list[Operation]]:
        """Transactions that make the store follow the truth; without verdict, or with `deletes`, also deletes."""
        there = {entry.key: entry.value for entry in self._stored()}
        hosts = [self.fleet.joins(name, number) for number, name in enumerate(HOSTS, start=1)]
        missing: list[Operation] = [put for put in hosts if put.key not in self._hosts()]
        if missing:
            yield missing
        for workload in WORKLOADS:
            place = self.places.get(workload)
            put = None if place is None else self._runs(workload, place[0])
            left = [one for one in there if f"-w{workload}-".encode() in one and (put is None or one != put.key)]
            ends: list[Operation] = [self.fleet.ends(f"w{workload}", _node(key)) for key in left]
            if put is not None and there.get(put.key) != put.value:
                yield [*ends, put]
            elif ends and (deletes or not self.state or put is not None):
                yield ends

    def _hosts(self) -> set[bytes]:
        keys = (self.fleet.leaves(name).key for name in HOSTS)
        return {key for key in keys if self.world.store.keys.get(key) is not None}

    def _stored(self) -> Sequence[Entry]:
        prefix = ENDPOINT.prefix(REGION)
        return self.world.store.keys.range(prefix, prefix + b"\xff")

    def _runs(self, workload: int, on: str) -> Put:
        return self.fleet.runs(f"w{workload}", on, f"10.65.0.{workload}/32")

    def wanted(self) -> dict[ClaimKey, Shape]:
        return {_route(workload): _shape(workload, on) for workload, (on, _) in self.places.items()}

    def judge(self, key: ClaimKey, shape: Shape | None) -> None:
        """Judge a change of the kernel."""
        before = self.shown.get(key)
        self.shown[key] = shape
        for workload, (on, since) in self.places.items():
            right = _shape(workload, on)
            is_lost = _route(workload) == key and before == right != shape
            if is_lost and self.world.time - since > SETTLED:
                why = f"the route of w{workload}, which is on {on}, became {shape}"
                self.world.fail("the judge", InvariantBroken(why))


def _route(workload: int) -> ClaimKey:
    return route(f"10.65.0.{workload}/32")


def _shape(workload: int, on: str) -> Shape:
    return LocalRoute(f"tap-w{workload}") if on == ME else RemoteRoute(f"10.99.0.{on[1:]}")


def _node(key: bytes) -> str:
    name = ENDPOINT.parse(key, REGION)
    assert not isinstance(name, Bad)
    return name.node


async def agent_restore_scenario(world: World) -> AgentRestoreResult:
    with tempfile.TemporaryDirectory(prefix="holdfast-sim-", dir=_fast()) as folder:
        site = HostHarness(world, Path(folder), FakeKernel(), audit=seconds(20), batch=world.random.choice([2, 1_000]))
        try:
            return await _run(RefilledStore(world, site, site.fleet()))
        finally:
            site.close()


async def _run(run: RefilledStore) -> AgentRestoreResult:
    world, random = run.world, run.world.random
    run.fleet.name_it()
    run.oldest = world.store.revision
    for _ in range(12):
        run.edit()
    run.site.kernel.observers.append(run.judge)
    run.site.start()
    tasks = [asyncio.create_task(run.lead()), asyncio.create_task(_renew(run))]
    await asyncio.sleep(random.uniform(5, 20))
    end, under_way = world.time + LASTING, set[asyncio.Task[None]]()
    while world.time < end:
        await asyncio.sleep(random.uniform(0.2, 3.0))
        if random.random() < 0.5:
            run.edit()
        elif random.random() < 0.25:
            run.lose()
        else:
            under_way.add(asyncio.create_task(random.choice(FAULTS)(run)))
    await asyncio.gather(*under_way)
    run.calm = True
    world.note("the trouble is over, and nobody edits any more")
    try:
        await world.until(lambda: _is_at_rest(run), within=REST)
    except TimeoutError:
        raise InvariantBroken(f"at rest: {_routes(run)} and not {run.wanted()}") from None
    for task in tasks:
        task.cancel()
    return AgentRestoreResult(run.restores, run.moves, run.lives)


def _is_at_rest(run: RefilledStore) -> bool:
    return not run.state and not run.lost and _routes(run) == run.wanted()


def _routes(run: RefilledStore) -> dict[ClaimKey, Shape]:
    ours = set(map(_route, WORKLOADS))
    return {key: shape for key, shape in run.site.kernel.objects.items() if key in ours}


async def _renew(run: RefilledStore) -> None:
    """Renew the leader's key, also before anybody has noticed anything: revisions and history go on."""
    while True:
        await asyncio.sleep(run.world.random.uniform(0.3, 2.0))
        run.fleet.write(run.fleet.leads())


async def _kill(run: RefilledStore) -> None:
    site, random = run.site, run.world.random
    site.node.kill()
    await asyncio.sleep(random.choice([0.0, 0.5, 8.0]))
    if not site.node.alive:
        run.lives += 1
        site.start()


async def _cut_off(run: RefilledStore) -> None:
    site = run.site
    site.unreachable.add("region")
    if "region" in site.clients:
        site.clients["region"].link.cut()
    await asyncio.sleep(run.world.random.choice([0.1, 1.0, 8.0]))
    site.heal()


async def _reset(run: RefilledStore) -> None:
    for client in run.site.clients.values():
        client.link.disconnect()
        client.link.lose_continuity()


async def _compact(run: RefilledStore) -> None:
    if run.world.store.revision > run.world.store.keys.compacted:
        run.world.store.compact()


FAULTS: Final[Sequence[Callable[[RefilledStore], Coroutine[Any, Any, None]]]] = (_kill, _cut_off, _reset, _compact)
