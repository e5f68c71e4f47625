"""The shipped agent on a simulated host, while a fleet changes around it and everything goes wrong that can.

Hosts join, leave, come back as somebody else and take over each other's addresses, workloads move, sources are away,
values rot, a watch falls behind, the kernel flaps and refuses, handlers are not ready, and the agent is
killed at any step. The judge knows the truth by a way of its own (`wants`: the oldest object has the claim), and looks
at every single change:

- nothing is removed from the kernel that the agent knows to be wanted, or that belongs to a source it has not heard;
- nothing is programmed before a source has spoken;
- no route leaves the host of a workload for the one that it is only on its way to, however late the word of that is;
- no route leaves this host while its workload is here, or from when it was made here on for one that is on its way here
  until it is moved, however late the word of that is;
- at rest the kernel, and a handler that nobody can read, hold exactly what the live hosts and workloads claim.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

from holdfast.agent.claims import (
    ClaimKey,
    ClaimKind,
    LocalRoute,
    RemoteRoute,
    Shape,
    device,
)
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.desired.slim_endpoint import SlimEndpoint
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Host
from holdfast.store.api import Delete, Operation, Put
from holdfast.store.mirror import mirror
from holdfast.testing import World
from holdfast.testing.fakes.kernel import FakeKernel
from tests.agent.harness import ME, REGION, Fleet, HostHarness, Ids, another_store
from tests.sim.election_invariants import InvariantBroken
from tests.sim.expected_state import KINDS, ExpectedState, Held, Object, holders, wants
from tests.sim.migrations import Operations, begin_migration, cancel_migration, finish_migration, steps

HOSTS = tuple(f"h{number}" for number in range(6))
NUMBERS = range(1, 8)
"""Fewer addresses than hosts come to need: they are reused."""
WORKLOADS = tuple(f"w{number}" for number in range(8))
INTERFACES = tuple(f"tap-{name}" for name in WORKLOADS)
PREFIXES = tuple(f"10.65.0.{number}/32" for number in range(1, 9))
LASTING = 15.0
REST = 180.0
ROTTEN = b'{"kind": "Node", '


@dataclass
class JudgedKernel(FakeKernel):
    """A kernel that notices when the agent takes away what it must not."""

    judge: Callable[[], Mapping[ClaimKey, str]] = dict
    """Returns the keys that must stay now, each with the reason."""
    wrong: Callable[[ClaimChange], str | None] = lambda _change: None
    """Returns what is wrong with a change, or None."""
    may_program: Callable[[], bool] = bool
    fail: Callable[[str], None] = lambda _why: None
    removals: int = 0
    _staying: Mapping[ClaimKey, str] = field(default_factory=dict)
    _by_the_agent: bool = False

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        if not self.may_program():
            self.fail(f"{len(changes)} changes were made before any source had spoken")
        for sentence in filter(None, map(self.wrong, changes)):
            self.fail(sentence)
        self._staying = self.judge()
        return await super().apply(changes)

    def _applied(self, change: ClaimChange) -> str | None:
        self._by_the_agent = True  # and not by somebody else, who may be at work between two changes
        try:
            return super()._applied(change)
        finally:
            self._by_the_agent = False

    def _remove(self, key: ClaimKey) -> None:
        if self._by_the_agent and key in self.objects:
            self.removals += 1
            if key in self._staying:
                self.fail(f"{key} was taken away although {self._staying[key]}")
        super()._remove(key)


@dataclass
class SwallowingIds(Ids):
    """N10: what comes before it is ready is acknowledged and forgotten."""

    async def apply(self, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
        return [None] * len(changes) if self.waits_for is not None else await super().apply(changes)


@dataclass(frozen=True, slots=True)
class AgentResult:
    """Counts of one run."""

    lives: int
    edits: int
    removals: int


@dataclass
class Scene:
    """Everything of one run."""

    world: World
    site: HostHarness
    truths: Mapping[str, ExpectedState]
    kernel: JudgedKernel
    ids: SwallowingIds
    lives: int = 1
    edits: int = 0

    @property
    def random(self) -> Random:
        return self.world.random

    def wanted(self) -> dict[ClaimKey, Shape]:
        """The truth of all sources, the first one last: it has precedence."""
        merged: dict[ClaimKey, Shape] = {}
        for truth in reversed(self.truths.values()):  # type: ignore[call-overload]  # a dict, in order
            merged |= wants(truth.objects, self.kernel.interfaces)
        return merged

    def must_stay(self) -> dict[ClaimKey, str]:
        """Return what the agent must not remove, by what it can know at this moment."""
        reconciler = self.site.reconciler
        staying: dict[ClaimKey, str] = {}
        for watcher in () if reconciler is None else reconciler.watchers:
            truth = self.truths[watcher.name]
            if watcher.synced.revision is not None:
                known = wants(_shown(watcher))
                staying |= dict.fromkeys(known, f"{watcher.name} wants it, and the agent knows")
            if not _is_heard(watcher):
                synced, revision = watcher.objects.synced, watcher.synced.revision or 0
                # Of a host that was deleted and made anew the agent knows only the first, until it has read on.
                known_of = {at: one for at, one in truth.objects.items() if not synced or one[0] <= revision}
                held = [(key, each) for key, each in holders(known_of).items() if not synced or self._is_of(key, each)]
                theirs = [key for key, _ in held if self._owner(key) in ("", watcher.name)]
                staying |= dict.fromkeys(theirs, f"{watcher.name} wants it, and has not been heard")
        return staying

    def wrong(self, change: ClaimChange) -> str | None:
        return self._usurped(change) or self._strayed(change) or self._deserted(change)

    def look(self) -> None:
        """Notes of which routes the agent knows all that there is to know."""
        for watcher in self._watchers():
            made = [key for key, owned in self.site.running.present.claims.items() if owned.source == watcher.name]
            ours = [key for key in made if isinstance(self.kernel.objects.get(key), LocalRoute)]
            self.truths[watcher.name].known(_shown(watcher), ours, self.world.time)

    def _deserted(self, change: ClaimChange) -> str | None:
        """Return the error if a workload's route leaves this host although the workload is here, or migrates here."""
        if change.old is None or change.old.source not in self.truths:
            return None
        name = self.truths[change.old.source].stays(change.key, self.world.time)
        if name is None or change.old.value.owner.endpoint != str(name):
            return None
        if change.new is None:
            return f"{change.key} was removed although {name} is here, or arrives"
        new = change.new.value.owner
        is_same = change.new.source == change.old.source and new.endpoint.endswith(name.individual)
        leaves = is_same and new.endpoint != str(name)
        return f"{change.key} went to {new.endpoint} although {name} is here, or arrives" if leaves else None

    def _usurped(self, change: ClaimChange) -> str | None:
        """Return the error if a source takes over a claim of a source with precedence that was not read yet."""
        if change.old is None or change.new is None or self.site.reconciler is None:
            return None
        order = [each.name for each in self.site.reconciler.watchers]
        unheard = [each.name for each in self.site.reconciler.watchers if each.synced.revision is None]
        old, new = change.old.source, change.new.source
        taken = old in unheard and new in order[order.index(old) + 1 :]
        return f"{change.key} went from {old}, which has not been heard, to {new}" if taken else None

    def _strayed(self, change: ClaimChange) -> str | None:
        """Return the error if a workload's route leaves its host for one that the workload only migrates to, or whose
        endpoint is left over from a migration that is gone."""
        if change.old is None or change.new is None or not isinstance(change.new.value.shape, RemoteRoute):
            return None
        owners = change.old.value.owner, change.new.value.owner
        for ends in self.truths[change.new.source].elsewhere(change.key):
            named = all(owner.endpoint == str(end) for owner, end in zip(owners, ends, strict=True))
            if named and any(one.name == change.new.source and one.has_host(ends[0].node) for one in self._watchers()):
                return f"{change.key} went from {ends[0].node} to {ends[1].node}, where its workload is only expected"
        return None

    def _watchers(self) -> Sequence[SourceWatcher]:
        return () if self.site.reconciler is None else self.site.reconciler.watchers

    def has_spoken(self) -> bool:
        return self.site.reconciler is not None and bool(self.site.reconciler.sources.complete)

    def _owner(self, key: ClaimKey) -> str:
        present = self.site.running.present.claims.get(key)
        return "" if present is None else present.source

    def _is_of(self, key: ClaimKey, held: Held) -> bool:
        """Return whether the agent can know that the key belongs to that owner, or knows nothing of it."""
        present = self.site.running.present.claims.get(key)
        if present is None or not present.source:
            return True
        owner = present.value.owner
        return owner.endpoint == str(held.name) if held.name is not None else owner.host == held.host

    def programmed(self) -> dict[ClaimKey, Shape]:
        """Objects in the kernel except our tunnel devices, whose MAC is that of the last Node of this host."""
        return {key: shape for key, shape in self.kernel.objects.items() if key.kind is not ClaimKind.DEVICE}

    def is_at_rest(self, wanted: Mapping[ClaimKey, Shape]) -> bool:
        tunnels = {device(key.family) for key in wanted if key.kind is ClaimKind.FORWARDING}
        return self.programmed() == wanted and self.ids.held.keys() == wanted.keys() | tunnels

    def difference(self, wanted: Mapping[ClaimKey, Shape]) -> str:
        there = self.programmed()
        wrong = [f"{key} is missing" for key in sorted(wanted.keys() - there.keys())]
        wrong += [f"{key} is still there" for key in sorted(there.keys() - wanted.keys())]
        wrong += [f"{key} is {there[key]} and not {shape}" for key, shape in wanted.items() if there.get(key) != shape]
        wrong += [f"ids never let go of {key}" for key in sorted(self.ids.held.keys() - wanted.keys())]
        wrong += [f"ids never heard of {key}" for key in sorted(wanted.keys() - self.ids.held.keys())]
        return "; ".join(wrong)


def _is_heard(watcher: SourceWatcher) -> bool:
    return watcher.objects.synced and not watcher.objects.unreadable


def _shown(watcher: SourceWatcher) -> dict[bytes, tuple[int, Object]]:
    mirror = watcher.objects
    return {key: (mirror.create_revision(key), _whole(each)) for key, each in mirror.objects.items()}


def _whole(shown: Object | SlimEndpoint) -> Object:
    """Return the object as `Fleet` has written it."""
    if not isinstance(shown, SlimEndpoint):
        return shown
    name = shown.name._asdict()
    return Endpoint.of(
        REGION,
        EndpointSpec(**name, interface_name=shown.interface, ip_networks=tuple(key.text for key in shown.prefixes)),
    )


async def agent_scenario(world: World) -> AgentResult:
    """Lists and batches are taken in one object at a time: what is large in life is small here."""
    with patch.object(mirror, "SLICE", 1), tempfile.TemporaryDirectory(prefix="holdfast-sim-", dir=_fast()) as folder:
        scene = _scene(world, Path(folder))
        try:
            return await _live(scene)
        finally:
            scene.site.close()


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _scene(world: World, folder: Path) -> Scene:
    stores = {"region": world.store}
    if world.random.random() < 0.4:
        stores["region-b"] = another_store()
    kernel, ids = JudgedKernel(interfaces=set(INTERFACES)), SwallowingIds()
    site = HostHarness(world, folder, kernel, (ids,), stores, audit=seconds(20), batch=world.random.choice([2, 1_000]))
    scene = Scene(world, site, {name: ExpectedState(store) for name, store in stores.items()}, kernel, ids)
    kernel.judge, kernel.may_program, kernel.wrong = scene.must_stay, scene.has_spoken, scene.wrong
    kernel.fail = lambda why: world.fail("the judge", InvariantBroken(why))
    kernel.pause = ids.pause = _slow_at_times(world.stream("kernel"))
    for name in stores:
        site.fleet(name).name_it()
    return scene


def _slow_at_times(random: Random) -> Callable[[], Coroutine[Any, Any, None]]:
    often, longest = random.choice([(0.1, 0.05), (0.5, 0.2)])

    async def pause() -> None:
        if random.random() < often:
            await asyncio.sleep(random.choice([0.0, 0.003, longest]))

    return pause


async def _live(scene: Scene) -> AgentResult:
    world, site = scene.world, scene.site
    for _ in range(6):
        await _edit(scene)
    site.start()
    under_way: set[asyncio.Task[None]] = set()
    faults = world.random.sample(FAULTS, KINDS_AT_ONCE)
    end = world.time + LASTING
    while world.time < end:
        await asyncio.sleep(world.random.choice([0.0, 0.02, 0.5, 1.5]) * world.random.uniform(0.2, 1.2))
        scene.look()
        if world.random.random() < 0.1:
            under_way.add(asyncio.create_task(_move(scene)))
        elif world.random.random() < 0.7:
            await _edit(scene)
        else:
            under_way.add(asyncio.create_task(world.random.choice(faults)(scene)))
    await asyncio.gather(*under_way)
    _mend(scene)
    world.note("the trouble is over, and nobody edits any more")
    await _rest(scene)
    return AgentResult(scene.lives, scene.edits, scene.kernel.removals)


async def _rest(scene: Scene) -> None:
    wanted, end = scene.wanted(), scene.world.time + REST
    while not scene.is_at_rest(wanted):
        if scene.world.time > end:
            raise InvariantBroken(f"at rest: {scene.difference(wanted)}")
        await asyncio.sleep(0.2)


async def _edit(scene: Scene) -> None:
    """People change one thing, or several at one revision."""
    random = scene.random
    source = random.choice(list(scene.truths))
    fleet = scene.site.fleet(source)
    operations: dict[bytes, Operation] = {}
    for _ in range(random.choice([1, 1, 2, 4])):
        made = random.choice(EDITS)(fleet, random, scene.truths[source])
        operations |= {operation.key: operation for operation in made}
    if operations:
        scene.edits += 1
        fleet.write(*operations.values())


async def _move(scene: Scene) -> None:
    """An operator moves a workload that migrates, in the order in which the syncer writes it."""
    source = scene.random.choice(list(scene.truths))
    fleet = scene.site.fleet(source)
    for step, pause in steps(fleet, scene.random, scene.truths[source]):
        fleet.write(step)
        await asyncio.sleep(pause)


def _join(fleet: Fleet, random: Random, _truth: ExpectedState) -> Operations:
    """Also: rejoin as somebody else, change the address, take over another host's."""
    name = random.choice(HOSTS)
    tunnel, mac = random.choice(NUMBERS), random.choice(NUMBERS)
    return [fleet.joins(name, random.choice(NUMBERS), uid=f"{random.random()}", tunnel=tunnel, mac=mac)]


def _leave(fleet: Fleet, random: Random, _truth: ExpectedState) -> Operations:
    return [fleet.leaves(random.choice(HOSTS))]


def _take_over(fleet: Fleet, random: Random, truth: ExpectedState) -> Operations:
    """A host is gone, and another one has all its addresses, at one revision."""
    old = _some_host(random, truth)
    if old is None:
        return []
    heir = random.choice([name for name in HOSTS if name != old.metadata.name])
    new = Host.of(heir, old.spec, uid=f"{random.random()}")
    return [fleet.leaves(old.metadata.name), *_run(fleet, random, truth), Put(HOST.key(REGION, heir), HOST.encode(new))]


def _some_host(random: Random, truth: ExpectedState) -> Host | None:
    hosts = [one for _, one in truth.objects.values() if isinstance(one, Host)]
    return random.choice(hosts) if hosts else None


def _run(fleet: Fleet, random: Random, _truth: ExpectedState) -> Operations:
    on = ME if random.random() < 0.2 else random.choice(HOSTS)
    return [fleet.runs(random.choice(WORKLOADS), on, *random.sample(PREFIXES, random.choice([1, 1, 2])))]


def _end(fleet: Fleet, random: Random, truth: ExpectedState) -> Operations:
    running = [one for _, one in truth.objects.values() if isinstance(one, Endpoint)]
    ending = random.sample(running, min(len(running), 1))
    return [fleet.ends(one.spec.workload, one.spec.node) for one in ending]


def _rot(fleet: Fleet, random: Random, truth: ExpectedState) -> Operations:
    """A value becomes rubbish; somebody writes it anew some day, or deletes it."""
    known = sorted(truth.objects)
    return [Put(random.choice(known), ROTTEN)] if known and random.random() < 0.5 else []


Edit = Callable[[Fleet, Random, ExpectedState], Operations]
MOVES: Final[Sequence[Edit]] = (begin_migration, begin_migration, cancel_migration, finish_migration)
EDITS: Final[Sequence[Edit]] = (_join, _join, _leave, _take_over, _run, _run, _run, _end, *MOVES, _rot)


def _mend(scene: Scene) -> None:
    """Replace unreadable values by the last good ones."""
    for name, truth in scene.truths.items():
        store, fleet = truth.store, scene.site.fleet(name)
        for kind in KINDS:
            prefix = kind.prefix(REGION)
            for entry in store.keys.range(prefix, prefix + b"\xff"):
                if entry.value == ROTTEN:
                    fleet.write(Put(entry.key, kind.encode(truth.objects[entry.key][1])))  # type: ignore[arg-type]


async def _some_time(scene: Scene, *choices: float) -> None:
    await asyncio.sleep(scene.random.choice(choices or (0.05, 1.0, 6.0)) * scene.random.uniform(0.5, 1.5))


def _revive(scene: Scene) -> None:
    if not scene.site.node.alive:
        scene.lives += 1
        scene.site.start()


async def kill(scene: Scene) -> None:
    """SIGKILL between any two steps, and a new life later."""
    await _some_time(scene, 0.0, 0.01, 0.3)
    if scene.site.node.alive:
        scene.site.node.kill()
        await _some_time(scene, 0.0, 0.5, 8.0)
        _revive(scene)


async def kill_at_a_change(scene: Scene) -> None:
    """SIGKILL in the middle of a batch."""
    struck = asyncio.Event()

    def inject(_key: ClaimKey, _shape: Shape | None) -> None:
        if not struck.is_set() and scene.random.random() < 0.5:
            struck.set()
            scene.site.node.kill()

    scene.kernel.observers.append(inject)
    await _some_time(scene)
    scene.kernel.observers.remove(inject)
    _revive(scene)


async def deaf_start(scene: Scene) -> None:
    """A new life begins while the first source cannot be reached, and another one claims something of its."""
    site, source = scene.site, next(iter(scene.truths))
    site.unreachable.add(source)
    site.node.kill()
    _revive(scene)
    for other in list(scene.truths)[1:]:
        found = _some_host(scene.random, scene.truths[source])
        if found is not None:
            site.fleet(other).write(Put(HOST.key(REGION, found.metadata.name), HOST.encode(found)))
    await _some_time(scene, 2.0, 8.0)
    site.unreachable.discard(source)
    if source in site.clients:
        site.clients[source].link.heal()


async def come_back(scene: Scene) -> None:
    """N4: many leave at once, and are back before their deletion has walked its list."""
    source = scene.random.choice(list(scene.truths))
    fleet, truth = scene.site.fleet(source), scene.truths[source]
    gone = {key: one for key, (_, one) in truth.objects.items() if isinstance(one, Host)}
    if gone:
        fleet.write(*[Delete(key) for key in gone])
        await _some_time(scene, 0.02, 0.2)
        fleet.write(*[Put(key, HOST.encode(one)) for key, one in gone.items() if key not in truth.objects])


async def restart(scene: Scene) -> None:
    """A clean stop and a new start, also before the source has spoken."""
    site = scene.site
    if site.node.alive and site.reconciler is not None and not site.stopping.is_set():
        await site.stop()
        await _some_time(scene, 0.0, 3.0)
        _revive(scene)


async def cut_off(scene: Scene) -> None:
    """One source cannot be reached, by this life and the next."""
    site, source = scene.site, scene.random.choice(list(scene.truths))
    scene.world.note(f"{source} is cut off")
    site.unreachable.add(source)
    if source in site.clients:
        site.clients[source].link.cut()
    await _some_time(scene)
    site.unreachable.discard(source)
    if source in site.clients:
        site.clients[source].link.heal()


async def watch_behind(scene: Scene) -> None:
    """A source's stream is silent while its answers go on; and a workload sets out, arrives or turns back."""
    source = scene.random.choice(list(scene.truths))
    client = scene.site.clients.get(source)
    if client is None:
        return
    scene.world.note(f"the watch of {source} is behind")
    client.link.mute_watches(HOST.prefix(REGION))
    await _some_time(scene, 0.05, 1.0)
    fleet = scene.site.fleet(source)
    happens = scene.random.choice([begin_migration, begin_migration, cancel_migration, finish_migration])
    fleet.write(*happens(fleet, scene.random, scene.truths[source]))
    await _some_time(scene)
    client.link.heal()


async def reset(scene: Scene) -> None:
    """Connections are reset and continuity is lost: everything is listed again."""
    for client in scene.site.clients.values():
        client.link.disconnect()
        client.link.lose_continuity()


async def compact(scene: Scene) -> None:
    for truth in scene.truths.values():
        if truth.store.revision > truth.store.keys.compacted:
            truth.store.compact()


async def flap(scene: Scene) -> None:
    scene.world.note("the links flap")
    scene.kernel.flap()


async def lose_interfaces(scene: Scene) -> None:
    """The interfaces of some workloads go, with their routes, or do not come before a while has passed."""
    kernel, lost = scene.kernel, scene.random.sample(INTERFACES, 3)
    scene.world.note(f"{', '.join(lost)} do not exist")
    for interface in lost:
        kernel.disappear(interface)
        for truth in scene.truths.values():
            truth.lose(interface)
    await _some_time(scene)
    for interface in lost:
        kernel.appear(interface)


async def flush(scene: Scene) -> None:
    """Somebody removes some of our objects, seen or unseen."""
    keys = [key for key in sorted(scene.kernel.objects) if scene.random.random() < 0.3]
    scene.world.note(f"somebody flushes {len(keys)} objects")
    scene.kernel.flush(keys, silently=scene.random.random() < 0.5)


async def interrupt(scene: Scene) -> None:
    scene.kernel.interruptions += scene.random.randint(1, 3)


async def refuse(scene: Scene) -> None:
    """For a while the kernel, or the handler beside it, refuses what it does not like."""
    handler: JudgedKernel | SwallowingIds = scene.kernel if scene.random.random() < 0.5 else scene.ids
    unlucky = scene.random.choice([None, *NUMBERS])
    handler.refuse = lambda change: "not now" if unlucky in (None, change.key.number % len(NUMBERS)) else None
    for fleet in map(scene.site.fleet, scene.truths):
        fleet.write(*[fleet.leaves(name) for name in scene.random.sample(HOSTS, 2)])
    await _some_time(scene)
    handler.refuse = lambda _change: None


async def not_ready(scene: Scene) -> None:
    scene.ids.waits_for = "its table"
    await _some_time(scene)
    scene.ids.waits_for = None


async def kernel_away(scene: Scene) -> None:
    scene.kernel.away = "it does not answer"
    await _some_time(scene)
    scene.kernel.away = None


Fault = Callable[[Scene], Coroutine[Any, Any, None]]
FAULTS: Final[Sequence[Fault]] = (
    kill,
    kill,
    kill_at_a_change,
    deaf_start,
    come_back,
    restart,
    cut_off,
    watch_behind,
    watch_behind,
    reset,
    compact,
    flap,
    lose_interfaces,
    lose_interfaces,
    flush,
    interrupt,
    refuse,
    not_ready,
    kernel_away,
)
KINDS_AT_ONCE = 5
