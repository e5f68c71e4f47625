"""The claims of a fleet's objects on the simulated host, computed independently of the agent.

`ExpectedState` follows what one store holds and, for every workload that is on this host or migrates to it, since when
that has been so without a break: once the agent has made the workload's route here and knows everything that the store
holds, nothing may remove that route.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, NamedTuple

from holdfast.agent.claims import (
    ClaimKey,
    FdbEntry,
    LocalRoute,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    RemoteRoute,
    Shape,
    forwarding,
    neighbour,
    nexthop,
    route,
)
from holdfast.model.base.bad import Bad
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from holdfast.model.calico.host import HOST, Host
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.testing import FakeStore, StoreWrite
from tests.agent.harness import ME, REGION

Object = Host | Endpoint | Migration
Objects = Mapping[bytes, tuple[int, Object]]
KINDS = (HOST, ENDPOINT, MIGRATION)
EXPECTED, AWAITED, SETTLED = range(3)
LONG_KNOWN = 1.0


class Held(NamedTuple):
    """The owner of a claim, an endpoint or a host; and the source of the live migration by which it owns it, if any."""

    shape: Shape
    name: EndpointName | None = None
    source: EndpointName | None = None
    host: str = ""


def wants(objects: Objects, interfaces: Collection[str] | None = None) -> dict[ClaimKey, Shape]:
    """Return the claims of these objects on this host, if these interfaces exist; None stands for all."""
    return {key: held.shape for key, held in holders(objects, interfaces).items()}


def holders(objects: Objects, interfaces: Collection[str] | None = None) -> dict[ClaimKey, Held]:
    """Return the owner of each claim. A workload is where it most certainly is, and of several workloads the oldest
    owns the claim; an owner that is recorded here as well owns it here, if its interface exists."""
    hosts = {one.metadata.name: one for _, one in objects.values() if isinstance(one, Host)}
    places: dict[ClaimKey, dict[Any, list[tuple[int, int, bytes, Held]]]] = {}
    for at, (created, one) in objects.items():
        standing, source = _standing(one, objects)
        for key, held in _held(one, source, objects, hosts).items():
            whose = at if held.name is None else held.name.individual
            places.setdefault(key, {}).setdefault(whose, []).append((standing, -created, at, held))
    return {key: _holder(list(claimed.values()), interfaces) for key, claimed in places.items()}


def _holder(claimed: list[list[tuple[int, int, bytes, Held]]], interfaces: Collection[str] | None) -> Held:
    def surest(places: list[tuple[int, int, bytes, Held]]) -> tuple[int, int, bytes, Held]:
        return max(places, key=lambda each: each[:3])

    owner = max(claimed, key=lambda places: (surest(places)[0] > EXPECTED, *surest(places)[1:3]))
    here = [held for *_, held in owner if _is_there(held.shape, interfaces)]
    return here[0] if here else surest(owner)[3]


def _is_there(shape: Shape, interfaces: Collection[str] | None) -> bool:
    return isinstance(shape, LocalRoute) and (interfaces is None or shape.interface in interfaces)


def _held(
    one: Object, source: EndpointName | None, objects: Objects, hosts: Mapping[str, Host]
) -> dict[ClaimKey, Held]:
    if isinstance(one, Host):
        return {key: Held(shape, host=one.metadata.name) for key, shape in _of_host(one).items()}
    name = one.target if isinstance(one, Migration) else one.name
    endpoint = _endpoint(source, objects) if isinstance(one, Migration) else one
    return {key: Held(shape, name, source) for key, shape in _routes(endpoint, name.node, hosts).items()}


def _standing(one: Object, objects: Objects) -> tuple[int, EndpointName | None]:
    if isinstance(one, Host):
        return SETTLED, None
    if isinstance(one, Migration):
        counts = one.target.node == ME and _endpoint(one.target, objects) is None
        return EXPECTED, one.source if counts else None
    moves = [each for _, each in objects.values() if isinstance(each, Migration) and each.target == one.name]
    if not moves or moves[0].source == one.name:
        return SETTLED, None
    return (AWAITED if _endpoint(moves[0].source, objects) is None else EXPECTED), moves[0].source


def _endpoint(name: EndpointName | None, objects: Objects) -> Endpoint | None:
    found = objects.get(ENDPOINT.key(REGION, name)) if name is not None else None
    return found[1] if found is not None and isinstance(found[1], Endpoint) else None


def _routes(endpoint: Endpoint | None, on: str, hosts: Mapping[str, Host]) -> dict[ClaimKey, Shape]:
    if endpoint is None or (on != ME and on not in hosts):
        return {}
    shape = LocalRoute(endpoint.spec.interface_name) if on == ME else RemoteRoute(hosts[on].spec.tunnel_ipv4)
    return {route(prefix): shape for prefix in endpoint.spec.ip_networks}


def _of_host(host: Host) -> dict[ClaimKey, Shape]:
    if host.metadata.name == ME:
        return {}
    spec = host.spec
    return {
        forwarding(4, spec.tunnel_mac): FdbEntry(str(host.underlay(4))),
        neighbour(spec.tunnel_ipv4): NeighbourEntry(spec.tunnel_mac),
        nexthop(spec.tunnel_ipv4): NexthopEntry(Mode.VXLAN),
        route(f"{spec.tunnel_ipv4}/32"): RemoteRoute(spec.tunnel_ipv4),
    }


@dataclass
class ExpectedState:
    """The objects of one store; of an unreadable value, the last good object."""

    store: FakeStore
    objects: dict[bytes, tuple[int, Object]] = field(default_factory=dict)
    rotten: set[bytes] = field(default_factory=set)
    here: dict[ClaimKey, tuple[EndpointName, float]] = field(default_factory=dict)
    """Routes that lead here, as the agent knows since then, of workloads that are here or on their way ever since."""
    _gone: dict[bytes, tuple[int, Object]] = field(default_factory=dict)
    """Hosts that are gone, and the agent may not have heard so: it rightly believes that something moved there."""
    _held: Mapping[ClaimKey, Held] = field(default_factory=dict)
    written: dict[bytes, int] = field(default_factory=dict)
    """Revision of the last write of a key, readable or not."""
    _expected_until: dict[EndpointName, int] = field(default_factory=dict)
    """Last revision at which an endpoint was the target of a migration."""

    def __post_init__(self) -> None:
        self.store.observers.append(self._note)

    def _note(self, write: StoreWrite) -> None:
        for event in write.events:
            kind = next((kind for kind in KINDS if event.key.startswith(kind.prefix(REGION))), None)
            if kind is None:
                continue
            decoded = None if event.entry is None else kind.decode(event.key, event.entry.value)
            self.rotten.discard(event.key)
            self.written[event.key] = write.revision
            if decoded is None:
                gone = self.objects.pop(event.key, None)
                if gone is not None and isinstance(gone[1], Host):
                    self._gone[event.key] = gone
            elif isinstance(decoded, Bad):
                self.rotten.add(event.key)
            else:
                assert event.entry is not None
                self.objects[event.key] = event.entry.create_revision, decoded
        moves = [one for _, one in self.objects.values() if isinstance(one, Migration)]
        self._expected_until |= {one.target: write.revision for one in moves}
        self._hold()

    def _hold(self) -> None:
        before, self._held = self._held, holders(self._gone | self.objects)
        for key in [key for key in self.here if not self._goes_on(before[key], self._held.get(key))]:
            del self.here[key]

    def known(self, shown: Objects, made: Collection[ClaimKey], now: float) -> None:
        """Record what the agent knows now, and which routes lead here."""
        heard = [host for host in self._gone if host not in shown or host in self.objects]
        for host in heard:
            del self._gone[host]
        if heard:
            self._hold()
        if shown != self.objects:
            return
        for key, held in self._held.items():
            if key in made and isinstance(held.shape, LocalRoute) and held.name is not None:
                self.here.setdefault(key, (held.name, now))

    def lose(self, interface: str) -> None:
        """Forget routes to an interface that is gone, until they are made again."""
        for key in [key for key in self.here if self._held[key].shape == LocalRoute(interface)]:
            del self.here[key]

    def stays(self, key: ClaimKey, now: float) -> EndpointName | None:
        """Return the workload whose route must stay here; not at once, because earlier plans may be in flight."""
        name, since = self.here.get(key, (None, now))
        return name if now - since > LONG_KNOWN else None

    def _goes_on(self, before: Held, after: Held | None) -> bool:
        """Return True if the workload is here for the same reason, or its migration is gone and its endpoint is here:
        it has arrived, or the endpoint that is no longer needed is still to be deleted."""
        return after == before or (before.source is not None and after == before._replace(source=None))

    def elsewhere(self, key: ClaimKey) -> Iterator[tuple[EndpointName, EndpointName]]:
        """Return pairs of places of one workload with that route, of which the first, and its host, have been there
        since before the second was created: whatever a reader has seen of them, it is at the first."""
        hosts = {one.metadata.name: created for created, one in self.objects.values() if isinstance(one, Host)}
        found = [(at, each) for at, (_, each) in self.objects.items() if isinstance(each, Endpoint)]
        places = [(at, each) for at, each in found if key in map(route, each.spec.ip_networks)]
        for (at, first), (newer, second) in permutations(places, 2):
            since = self.objects[newer][0]
            is_same = first.name.individual == second.name.individual
            is_older = self.objects[at][0] < since and self.written[at] <= since
            is_older = is_older and hosts.get(first.spec.node, since) < since
            if is_same and is_older and self._expected_until.get(first.name, 0) < since:
                yield first.name, second.name
