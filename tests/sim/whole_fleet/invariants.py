"""The judge of the whole fleet. It sees every accepted write and, at rest, both sides of every place that reconciles.

- A leader key is only taken by a server whose predecessor's key is gone, terms only grow, and nobody but the holder
  puts the key again or deletes it while its process lives.
- Desired state is written only by the server whose key is the leader's at that revision: no write of an old term; and
  no object is deleted from the store that the people never deleted or moved.
- At rest the inventory has what the people were told it has, the store is the inventory, every agent's kernel has the
  routes of the store, every balancer's table serves the frontends of the store with all backends, one server leads, and
  the inventory knows every agent that reports.

`witness` judges what is taken from kernels and tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from holdfast.agent.claims import ClaimKey, ClaimKind, LocalRoute, RemoteRoute, route
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import NO_BACKEND, BackendEntry
from holdfast.config.sections.frontend import Backend, Frontend
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.balancing import BACKEND, FRONTEND
from holdfast.model.base import codec
from holdfast.model.base.address import address_order
from holdfast.model.base.bad import Bad
from holdfast.model.calico.agent_status import AGENT_STATUS
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.model.calico.host import HOST, Host
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.fleet.observed import AgentSeen
from holdfast.store.api import Event, prefix_end
from holdfast.testing import StoreWrite, World
from tests.server.harness import differing
from tests.sim.election_invariants import EXPIRY, InvariantBroken
from tests.sim.whole_fleet.fleet import REGION, SimFleet

LEADER_KEY = LEADER.key(REGION, "leader")
_SEEN = msgspec.json.Decoder(AgentSeen)
PREFIXES = tuple(kind.prefix(REGION) for kind in KINDS)


@dataclass
class FleetInvariants:
    world: World
    fleet: SimFleet
    terms: list[int] = field(default_factory=list)
    terms_before: int = 0
    """Terms before the last restore of the store."""
    desired_writes: int = 0
    deletes: int = 0
    _holder: str = ""

    def __post_init__(self) -> None:
        self.world.store.observers.append(self._judge)
        self.world.store.replaced.append(self._begin_again)

    def _begin_again(self) -> None:
        """The store was restored or wiped: numbers of terms are used again, and an old leader key may be back."""
        self.terms_before += len(self.terms)
        self.terms.clear()
        entry = self.world.store.keys.get(LEADER_KEY)
        leader = None if entry is None else LEADER.decode(entry.key, entry.value)
        self._holder = leader.name if isinstance(leader, Leader) else ""

    def _judge(self, write: StoreWrite) -> None:
        by = write.client.partition("/")[0]
        holder = self._holder  # what is written together with the end of a term belongs to it
        for event in write.events:
            if event.key == LEADER_KEY:
                self._judge_key(write, by, event)
        desired = [event for event in write.events if event.key.startswith(PREFIXES)]
        for event in desired:
            if event.entry is None:
                self.deletes += 1
                if event.key not in self.fleet.asked.keys:
                    self._broken(f"{write.client} deletes {event.key!r}, and nobody asked for it")
        if desired and by in self.fleet.servers:
            self.desired_writes += len(desired)
            if by not in (holder, self._holder):
                self._broken(f"{write.client} writes desired state while {self._holder or 'nobody'} leads")

    def _judge_key(self, write: StoreWrite, by: str, event: Event) -> None:
        if event.entry is None:
            if write.client != EXPIRY and by != self._holder and self.fleet.machines[self._holder].boots == 1:
                self._broken(f"{write.client} deletes the leader key of {self._holder}")
            self._holder = ""
            return
        leader = LEADER.decode(event.key, event.entry.value)
        if not isinstance(leader, Leader) or leader.name != by:
            self._broken(f"{write.client} puts the leader key of {leader}")
            return
        if event.entry.version == 1:
            if self.terms and event.entry.create_revision <= self.terms[-1]:
                self._broken(f"term {event.entry.create_revision} begins after term {self.terms[-1]}")
            self.terms.append(event.entry.create_revision)
            self._holder = by
        elif by != self._holder:
            self._broken(f"{write.client} puts the leader key of {self._holder}")

    def _broken(self, what: str) -> None:
        self.world.fail("the judge", InvariantBroken(what))

    @property
    def leader(self) -> str:
        return self._holder

    def stored(self, prefix: bytes) -> Mapping[bytes, bytes]:
        found = self.world.store.keys.range(prefix, prefix_end(prefix))
        return {entry.key: entry.value for entry in found}

    def differences(self, inventory: SqlInventory, observed: SqlObserved) -> list[str]:
        """Return what is not yet as it has to be at rest."""
        return [
            *self._in_store(inventory),
            *(text for name in self.fleet.agents for text in self._in_kernel(name)),
            *(text for name in self.fleet.balancers for text in self._in_table(name)),
            *self._in_status(observed),
            *([] if self._holder else ["nobody leads"]),
        ]

    def _in_store(self, inventory: SqlInventory) -> Iterator[str]:
        snapshot = inventory.snapshot()
        try:
            wanted = {row.key: row.doc for row in snapshot.read(None, 10_000)}
        finally:
            snapshot.close()
        stored = {key: value for prefix in PREFIXES for key, value in self.stored(prefix).items()}
        for key in sorted(set(self.fleet.asked.wanted.values()) ^ wanted.keys()):
            yield f"the inventory {'has' if key in wanted else 'has lost'} {key!r}, and the people were told otherwise"
        for key in differing(REGION, stored, wanted):
            yield f"store and inventory differ at {key!r}"

    def _in_kernel(self, name: str) -> Iterator[str]:
        wanted = self.routes(name)
        held = self.fleet.kernels[name].objects
        there = {key: type(shape) for key, shape in held.items() if key.kind is ClaimKind.ROUTE}
        for key in sorted(wanted.keys() | there.keys()):
            if wanted.get(key) is not there.get(key):
                yield f"{name} has {there.get(key)} for {key}, and {wanted.get(key)} is wanted"

    def routes(self, name: str) -> dict[ClaimKey, type]:
        """Return the routes of a host, computed from the store alone."""
        hosts = {}
        for key, value in self.stored(HOST.prefix(REGION)).items():
            host = HOST.decode(key, value)
            assert not isinstance(host, Bad)
            hosts[host.metadata.name] = host
        found: dict[ClaimKey, type] = {
            route(f"{host.spec.tunnel_ipv4}/32"): RemoteRoute for on, host in hosts.items() if on != name
        }
        for key, value in self.stored(ENDPOINT.prefix(REGION)).items():
            endpoint = ENDPOINT.decode(key, value)
            assert isinstance(endpoint, Endpoint)
            on = endpoint.spec.node
            if on == name or on in hosts:
                made = LocalRoute if on == name else RemoteRoute
                found |= {route(prefix): made for prefix in endpoint.spec.ip_networks}
        return found

    def _in_table(self, name: str) -> Iterator[str]:
        wanted, objects = self.served(), self.fleet.tables[name].objects
        vips = {key.vip.port for key in objects if key.backend == NO_BACKEND}
        for port in sorted(vips ^ wanted.keys()):
            yield f"{name} {'has' if port in vips else 'lacks'} the VIP on port {port}"
        for key, value in objects.items():
            if isinstance(value, BackendEntry) and value.weight == 0:
                yield f"{name} does not serve {key}"
        for port in vips & wanted.keys():
            held = {key.backend for key in objects if key.vip.port == port and key.backend != NO_BACKEND}
            if held != wanted[port]:
                yield f"{name} has other backends on port {port} than the store"

    def served(self) -> dict[int, set[BackendId]]:
        """Return the backends of each frontend by its port, computed from the store alone; NO_BACKEND for one that the
        store does not have yet."""
        backends = {}
        for key, value in self.stored(BACKEND.prefix(REGION)).items():
            backend = BACKEND.decode(key, value)
            assert isinstance(backend, Backend)
            if address := self._address(backend):
                backends[key.rpartition(b"/")[2].decode()] = BackendId(*address_order(address), 80)
        found = {}
        for key, value in self.stored(FRONTEND.prefix(REGION)).items():
            frontend = FRONTEND.decode(key, value)
            assert isinstance(frontend, Frontend)
            assert frontend.port is not None
            found[frontend.port] = {backends.get(name, NO_BACKEND) for pool in frontend.pools for name in pool.backends}
        return found

    def _address(self, backend: Backend) -> str:
        if backend.address is not None:
            return backend.address
        entry = self.world.store.keys.get(HOST.key(REGION, str(backend.host)))
        host = None if entry is None else HOST.decode(entry.key, entry.value)
        return str(host.spec.bgp.ipv4_address).partition("/")[0] if isinstance(host, Host) and host.spec.bgp else ""

    def _in_status(self, observed: SqlObserved) -> Iterator[str]:
        prefix = AGENT_STATUS.prefix(REGION)
        reported = {key for key in self.stored(prefix) if key.endswith(b"/status")}
        rows = {row.key: codec.decode(_SEEN, row.doc) for row in observed.read("agent", prefix, None, 1_000)}
        alive = {key for key, seen in rows.items() if seen.alive}
        for key in sorted(reported ^ alive):
            is_reported = "is" if key in reported else "is not"
            yield f"the inventory has {rows.get(key)} for {key!r}, which {is_reported} reported"
        for name in self.fleet.agents:
            if not any(f"/{name}/".encode() in key for key in reported):
                yield f"{name} does not report"
