"""A simulated host with the shipped agent on it: a store, a kernel that outlives the agent, and a folder that does too.

The agent lives in a node of the simulation, so it can be killed between any two steps, and its kernel takes time for
each change. `Fleet` writes hosts and endpoints into a store as the syncer would.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from holdfast.agent.claims import Claim, ClaimKey, ClaimKind, Shape
from holdfast.agent.dataplane.api import ClaimChange, Handler
from holdfast.agent.desired.peers import Encapsulation, LocalHost, Routing
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.agent.journal import Journal
from holdfast.agent.reconciler import AgentReconciler, ReconcilerSettings
from holdfast.agent.target import JournaledTarget
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.control.identity import IDENTITY, Identity, LatchedVerdict
from holdfast.model.control.intent import INTENT, Intent, IntentKind, IntentName
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.mark import MARK, Mark
from holdfast.model.control.scope import FLEET, Scope, ScopeKind
from holdfast.reconcile import BrakeLimits
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.reconciler.brake_memory import BrakeMemory
from holdfast.runtime.reconciler.place import LoopTimings
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Delete, Operation, Put, Store
from holdfast.testing import FakeStore, Node, World
from holdfast.testing.fakes.kernel import FakeKernel
from holdfast.testing.store.client import FakeClient
from holdfast.testing.store.link import world_time

START = datetime(1970, 1, 1, tzinfo=UTC)
REGION = Region()
ME = "me"
BOOT = "boot-1"
UNLIMITED = BrakeLimits(count=10**9, small=10**9)
"""A brake that never closes: for tests of other things, in fleets of a few hosts."""
INVENTORY = "inventory"


async def inline(work: Callable[[], None]) -> None:
    work()


@dataclass
class Fleet:
    """Writes hosts and endpoints into one store, as the syncer would."""

    store: FakeStore
    region: Region = REGION

    def name_it(
        self, fleet: str = "fleet-1", epoch: int = 1, *, filling: bool = False, verdict: LatchedVerdict | None = None
    ) -> None:
        identity = Identity(fleet, epoch, filling=filling, verdict=verdict)
        self.write(Put(IDENTITY.key(self.region, "identity"), IDENTITY.encode(identity)))

    def marks(self, number: int) -> Put:
        """The leader's mark of that number."""
        return Put(MARK.key(self.region, "mark"), MARK.encode(Mark(number, f"nonce-{number}")))

    def leads(self) -> Put:
        """The leader's key, as it is written at every renewal."""
        return Put(LEADER.key(self.region, "leader"), LEADER.encode(Leader("ctl-1", "ctl-1", 1)))

    def write(self, *operations: Operation) -> None:
        """Write everything at one revision."""
        self.store.apply(INVENTORY, (), operations)

    def joins(self, name: str, number: int, *, uid: str = "", tunnel: int | None = None, mac: int | None = None) -> Put:
        """A host whose underlay, tunnel address and MAC have that number, unless they have another."""
        return Put(HOST.key(self.region, name), HOST.encode(host(name, number, uid=uid, tunnel=tunnel, mac=mac)))

    def leaves(self, name: str) -> Delete:
        return Delete(HOST.key(self.region, name))

    def runs(self, workload: str, on: str, *prefixes: str, interface: str = "") -> Put:
        """A workload on a host."""
        spec = _spec(workload, on, prefixes, interface or f"tap-{workload}")
        made = Endpoint.of(self.region, spec)
        return Put(ENDPOINT.key(self.region, made.name), ENDPOINT.encode(made))

    def ends(self, workload: str, on: str) -> Delete:
        return Delete(ENDPOINT.key(self.region, EndpointName(on, "holdfast", workload, "eth0")))

    def migrates(self, workload: str, source: str, to: str) -> Put:
        made = Migration.of(self.region, EndpointName(source, "holdfast", workload, "eth0"), to)
        return Put(MIGRATION.key(self.region, made.target), MIGRATION.encode(made))

    def arrived(self, workload: str, to: str) -> Delete:
        return Delete(MIGRATION.key(self.region, EndpointName(to, "holdfast", workload, "eth0")))

    def pauses(self, why: str = "maintenance", *, since: datetime = START, until: datetime | None = None) -> Put:
        """An operator paused the fleet."""
        made = Intent(what=IntentKind.PAUSE, scope=FLEET, who="alice", why=why, since=since, until=until)
        return Put(INTENT.key(self.region, made.name), INTENT.encode(made))

    def resumes(self) -> Delete:
        return Delete(INTENT.key(self.region, IntentName(IntentKind.PAUSE, FLEET)))

    def allows(self, revision: int) -> Put:
        """An operator allowed the syncer's deletes up to that revision."""
        made = Intent(
            what=IntentKind.ALLOW,
            scope=Scope(ScopeKind.WORKER, "syncer"),
            revision=revision,
            who="alice",
            why="the row is gone",
            since=START,
        )
        return Put(INTENT.key(self.region, made.name), INTENT.encode(made))


def host(name: str, number: int, *, uid: str = "", tunnel: int | None = None, mac: int | None = None) -> Host:
    """A host, or this one, which has an address inside the tunnel only if one is given."""
    inside = tunnel if tunnel is not None or name == ME else number
    spec = HostSpec(
        bgp=Bgp(ipv4_address=f"192.0.2.{number}/32"),
        tunnel_ipv4="" if inside is None else f"10.99.0.{inside}",
        tunnel_mac=f"66:00:00:00:00:{number if mac is None else mac:02x}",
    )
    return Host.of(name, spec, uid=uid or f"uid-{name}")


def _spec(workload: str, on: str, prefixes: Sequence[str], interface: str) -> EndpointSpec:
    return EndpointSpec(
        orchestrator="holdfast",
        workload=workload,
        node=on,
        endpoint="eth0",
        interface_name=interface,
        ip_networks=tuple(prefixes),
    )


@dataclass
class Ids:
    """A handler that cannot be read back: only what the agent remembers can ever be deleted from it."""

    name: str = "ids"
    held: dict[ClaimKey, Claim] = field(default_factory=dict)
    waits_for: str | None = None
    refuse: Callable[[ClaimChange], str | None] = lambda _change: None
    pause: Callable[[], Awaitable[None]] | None = None

    def ready(self) -> str | None:
        return self.waits_for

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        if self.pause is not None:
            await self.pause()
        return [self._applied(change) for change in changes]

    def _applied(self, change: ClaimChange) -> str | None:
        refusal = self.refuse(change)
        if refusal is None and change.new is not None:
            self.held[change.key] = change.new.value
        elif refusal is None:
            self.held.pop(change.key, None)
        return refusal


@dataclass
class HostHarness:
    """One host. Everything here outlives its agent."""

    world: World
    folder: Path
    kernel: FakeKernel = field(default_factory=FakeKernel)
    others: tuple[Handler, ...] = ()
    stores: Mapping[str, FakeStore] = field(default_factory=dict)
    """Source → store, in order of precedence; nothing given is the world's own store as `region`."""
    unreachable: set[str] = field(default_factory=set)
    """Sources that cannot be reached when the agent starts; `heal` ends it."""
    limits: BrakeLimits = UNLIMITED
    audit: Duration = seconds(300)
    batch: int = 1_000
    hold_down: Duration = seconds(30)
    path: Callable[[], Sequence[str]] = tuple
    allowed: tuple[str, ...] = ()
    """Prefixes that an operator allows."""
    encapsulation: Encapsulation = Encapsulation.ALWAYS
    routing: Routing = Routing.MESH
    arrival_metric: int | None = 0
    reconciler: AgentReconciler | None = None
    clients: dict[str, FakeClient] = field(default_factory=dict)
    journals: list[Journal] = field(default_factory=list)
    decisions: list[DecisionLog] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        if not self.stores:
            self.stores = {"region": self.world.store}

    @property
    def node(self) -> Node:
        return self.world.node(ME)

    @property
    def running(self) -> AgentReconciler:
        assert self.reconciler is not None
        return self.reconciler

    @property
    def shapes(self) -> Mapping[ClaimKey, Shape]:
        """Objects in the kernel except the tunnel devices, which every peer behind a tunnel needs."""
        return {key: shape for key, shape in self.kernel.objects.items() if key.kind is not ClaimKind.DEVICE}

    def fleet(self, source: str = "region") -> Fleet:
        return Fleet(self.stores[source])

    def start(self) -> asyncio.Task[None]:
        """Start a new run of the agent; the kernel and the folder are as they were."""
        self.reconciler = None
        self.kernel.reattach()
        self.stopping = asyncio.Event()
        return self.node.run(self._life())

    async def stop(self) -> None:
        """Stop cleanly, unless the agent is killed first."""
        old = self.node.process
        self.stopping.set()
        await self.world.until(lambda: self.reconciler is None or self.node.process is not old or not self.node.alive)
        if self.node.process is old:
            self.node.kill()

    def close(self) -> None:
        for journal in self.journals:
            journal.close()
        for decisions in self.decisions:
            decisions.close()

    def programmed_peers(self) -> Mapping[str, int]:
        """Peers with objects in the kernel, by source."""
        owners = {(owned.source, owned.value.owner.host) for owned in self.running.present.claims.values()}
        return Counter(source for source, host in owners if host != ME)

    async def settled(self, within: Duration = seconds(120)) -> None:
        """Wait until the agent has compared everything and nothing is outstanding."""
        await self.world.until(lambda: self.reconciler is not None and self.reconciler.loop.passes > 0, within=within)
        reconciler = self.running
        # What was written is on its way, and what it touches is gathered: a moment is enough when nothing is wrong.
        await asyncio.sleep(0.5)
        await self.world.until(lambda: not reconciler.loop.backlog(), within=within)

    async def _life(self) -> None:
        clock = self.node.clock
        journal = Journal.open(self.folder / "journal", BOOT)
        self.journals.append(journal)
        here = LocalHost(ME, self.encapsulation, self.routing, self.arrival_metric)
        target = JournaledTarget(journal, self.kernel, self.others)
        watchers = [
            SourceWatcher(
                name,
                self._client(name),
                REGION,
                here,
                clock,
                blocked_by=self.kernel.blocked_by,
                owner_of=target.owner_of,
            )
            for name in self.stores
        ]
        self.decisions.append(decisions := DecisionLog(self.folder / "decisions", "agent"))
        context = Context(clock, Vitals(clock), decisions, WorkerMetrics())
        memories = {name: StoreMemory(self.folder, name) for name in self.stores}
        settings = ReconcilerSettings(
            self.limits, self.hold_down, LoopTimings(audit=self.audit, batch=self.batch), self.path, self.allowed
        )
        brake_memory = BrakeMemory(self.folder / "deletes", BOOT)
        self.reconciler = AgentReconciler(
            ME, watchers, target, memories, context, settings, inline, brake_memory=brake_memory
        )
        await self.reconciler.run(self.stopping)
        self.reconciler = None

    def _client(self, source: str) -> Store:
        client = self.node.store() if self.stores[source] is self.world.store else self._client_of(self.stores[source])
        self.clients[source] = client
        if source in self.unreachable:
            client.link.cut()
        return client

    def _client_of(self, store: FakeStore) -> FakeClient:
        assert self.node.process is not None
        client = store.client(self.node.process.name)
        client.link.latency = self.world.usual_latency
        self.node.process.clients.append(client)
        return client

    def heal(self) -> None:
        self.unreachable.clear()
        for client in self.clients.values():
            client.link.heal()


def another_store() -> FakeStore:
    """A second source's store, on the clock of the simulation."""
    return FakeStore(now=world_time)


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[list[None]]:
    """A list that grows by one with each turn that another task gets while something long runs."""
    turns: list[None] = []

    async def other() -> None:
        while True:
            await asyncio.sleep(0)
            turns.append(None)

    beside = asyncio.create_task(other())
    try:
        yield turns
    finally:
        beside.cancel()
