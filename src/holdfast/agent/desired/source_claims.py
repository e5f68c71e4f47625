"""Claims of one source on this host's kernel, kept up to date object by object. Pure.

A key that several live objects claim belongs to the one that has existed longest, and the conflict is reported. A
migrating workload is routed to where it is, by every host except its target: there, once its interface exists, it is
programmed from its own endpoint or, where only the migration exists, from the endpoint at the source. Changes arrive as
whole objects, in the order of the store; each method returns the claims that it may have touched. What is wanted
follows from the objects of one revision alone, except for unreadable ones, which keep what they had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from itertools import chain

from holdfast.agent.claims import LOCAL_KINDS, BlockedBy, Claim, ClaimKey, ClaimKind, LocalRoute
from holdfast.agent.desired.migrations import Arrival, Migrations, Move
from holdfast.agent.desired.ownership import (
    Claimant,
    ClaimConflict,
    ClaimOwners,
    Presence,
    Seniority,
    SourcedClaim,
    resolve,
)
from holdfast.agent.desired.peers import (
    FAMILIES,
    LocalHost,
    Peer,
    Routing,
    local_routes,
    local_setup,
    peer,
    remote_routes,
    tunnel_claims,
)
from holdfast.agent.desired.slim_endpoint import SlimEndpoint, without_host
from holdfast.agent.tunnels import mac_of, tunnel_mac
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName
from holdfast.model.calico.host import HOST, Host
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.reconcile import Owned

Revision = Callable[[bytes], int]
"""mod_revision of the last good value of a store key, or its create_revision."""
Holder = Callable[[ClaimKey], str]
"""Name of the endpoint that owns a key in the kernel now; empty if none does."""


class SourceClaims:
    """A `path` is the store key of an object."""

    def __init__(
        self,
        here: LocalHost,
        region: Region,
        revision: Revision = lambda _path: 0,
        created: Revision = lambda _path: 0,
        blocked_by: BlockedBy = lambda _key, _shape: None,
        holder: Holder = lambda _key: "",
    ) -> None:
        """`blocked_by` is asked about workloads that are recorded here and elsewhere: one without an interface is
        routed elsewhere. `holder` is asked which claims of the journal are still in force."""
        self._configured = here
        self._region = region
        self._here = here
        self._revision_of = revision
        self._created_of = created
        self._blocked_by = blocked_by
        self._holder = holder
        self.restored = False
        """The store was restored from a backup, and objects that are gone in truth may be in it."""
        self.own: Host | None = None
        """Node of this host itself."""
        self._own_path = HOST.key(region, here.host)
        self._peers: dict[str, Peer] = {}
        self._tunnelled: Counter[int] = Counter()
        """Peers behind the tunnel, by family."""
        self._hosts: dict[bytes, Host] = {}
        self.host_changes = 0
        """Rises with every change of a host."""
        self._endpoints: dict[bytes, SlimEndpoint] = {}
        self._on: dict[str, list[bytes]] = {}
        self._migrations = Migrations()
        self._unreadable: frozenset[EndpointName] = frozenset()
        self._restored: dict[bytes, tuple[SlimEndpoint, int]] = {}
        """Unreadable endpoints as the journal remembers them, with their revision."""
        self._unexplained: dict[str, set[ClaimKey]] = {}
        """Local routes from the journal, by workload, for which an unreadable migration may be the reason; its source
        is known once the endpoint there can be read."""
        self._assumed: set[bytes] = set()
        """Unreadable migrations whose source follows from such routes."""
        self._owners = ClaimOwners()
        self._claimant_ranks: dict[bytes, int] = {}
        """Ranks of the claimants of shared keys, as of the last call of `rewritten`."""

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self._owners)

    def wanted(self, key: ClaimKey) -> SourcedClaim | None:
        """Return the claim that wins this key."""
        sole = self._owners.sole.get(key)
        if sole is not None or key not in self._owners.shared:
            return sole
        return self._resolve(key).winner.wanted

    def conflicts(self) -> list[ClaimConflict]:
        """Conflicts worth reporting."""
        # Two endpoints may share an interface, and both need the same of it.
        found = [self._resolve(key) for key in sorted(self._owners.shared) if key.kind not in LOCAL_KINDS]
        return [conflict for each in found if (conflict := each.reportable()) is not None]

    def refusals(self) -> list[str]:
        """Sentences about hosts that cannot be programmed."""
        return sorted(each.refusal for each in self._peers.values() if each.refusal)

    def peers(self) -> int:
        return len(self._peers)

    def macs(self) -> dict[int, str]:
        """MACs by which other hosts know our VXLAN devices, by family."""
        own, name = self.own, self._configured.host
        return {each: tunnel_mac(name, each) if own is None else mac_of(own, each) for each in FAMILIES}

    def on(self, host: str) -> list[SlimEndpoint]:
        """Endpoints of that host."""
        return [self._endpoints[path] for path in sorted(self._on.get(host, ()))]

    def local(self) -> list[SlimEndpoint]:
        """Endpoints of this host, including those that only a migration announces."""
        return [*self.on(self._here.host), *filter(None, (self._arriving(path) for path, _ in self._migrations))]

    def arrivals(self) -> list[Arrival]:
        """Workloads that migrate to this host."""
        known = {one.name: one for one in self.local()} if self._migrations else {}
        arriving = [move for _, move in self._migrations if move.target in known]
        return [Arrival(known[move.target], move.source.node) for move in arriving]

    def hosts(self) -> Iterable[Host]:
        """Hosts of the source, this one included."""
        return self._hosts.values()

    def set_host(self, path: bytes, host: Host | None) -> set[ClaimKey]:
        self.host_changes += 1
        known = self._hosts.pop(path, None) if host is None else host
        if known is None:
            return set()
        if host is not None:
            self._hosts[path] = host
        name = known.metadata.name
        return self._set_own(host) if name == self._configured.host else self._set_peer(path, name, host)

    def set_endpoint(self, path: bytes, endpoint: SlimEndpoint | None) -> set[ClaimKey]:
        old = self._endpoints.pop(path, None)
        if old is not None:
            self._on[old.node].remove(path)
        if endpoint is not None:
            self._endpoints[path] = endpoint
            self._on.setdefault(endpoint.node, []).append(path)
        known = endpoint or old
        if known is not None and known.node != self._here.host and self._here.routing is Routing.BGP:
            return self._update_arrival(known)
        about = self._migrations.about(known.name) if known is not None and self._migrations else ()
        return self._route(path).union(*(self._update_move(each) for each in about))

    def set_migration(self, path: bytes, migration: Migration | None) -> set[ClaimKey]:
        self._assumed.discard(path)
        if migration is None or migration.source == migration.target:
            return self._end(path)
        self._migrations.put(path, Move(migration.source, migration.target))
        return self._update_move(path)

    def restore(self, claims: Iterable[tuple[ClaimKey, Owned[Claim]]]) -> set[ClaimKey]:
        """Take in the claims that earlier runs programmed: an object that is unreadable now was readable then (C39).
        The claims of an endpoint count, with their old revision; so do local routes that a migration explains."""
        local: dict[str, set[ClaimKey]] = {}
        unreadable = self._unreadable_owners()
        known: dict[EndpointName, dict[ClaimKey, Owned[Claim]]] = {}
        for key, owned in claims:
            claim = owned.value
            if isinstance(claim.shape, LocalRoute):
                local.setdefault(without_host(claim.owner.endpoint, self._here.host), set()).add(key)
            if claim.owner.endpoint in unreadable and self._holder(key) == claim.owner.endpoint:
                known.setdefault(unreadable[claim.owner.endpoint], {})[key] = owned
        self._unexplained = self._explicable(local)
        touched = set[ClaimKey]().union(*(self._restore_endpoint(name, routes) for name, routes in known.items()))
        return touched | self._assume_sources()

    def _explicable(self, routes: Mapping[str, set[ClaimKey]]) -> dict[str, set[ClaimKey]]:
        """Return those of these routes, by workload, for which an unreadable migration may be the reason."""
        expected = {name.individual for name in self._migrations.unreadable_to(self._here.host)}
        return {individual: its for individual, its in routes.items() if individual in expected}

    def _assume_sources(self) -> set[ClaimKey]:
        """Take a workload with a local route from the journal to be the one that its unreadable migration brings."""
        touched: set[ClaimKey] = set()
        for source in self._elsewhere(self._unexplained):
            move = Move(source, source._replace(node=self._here.host))
            path = MIGRATION.key(self._region, move.target)
            if self._migrations.get(path) is None and not self._existing(move.target):
                self._assumed.add(path)
                self._migrations.put(path, move)
                touched |= self._update_move(path)
        return touched

    def _unreadable_owners(self) -> dict[str, EndpointName]:
        """Owners whose claims describe an unreadable endpoint: its own name, and that of a workload that only a
        migration brings here from there."""
        here = [move for _, move in self._migrations if move.target.node == self._here.host]
        brought = [move for move in here if move.source in self._unreadable and not self._existing(move.target)]
        return {str(move.target): move.source for move in brought} | {str(name): name for name in self._unreadable}

    def _restore_endpoint(self, name: EndpointName, routes: Mapping[ClaimKey, Owned[Claim]]) -> set[ClaimKey]:
        # protection: C39
        shapes = [owned.value.shape for owned in routes.values()]
        interface = next((shape.interface for shape in shapes if isinstance(shape, LocalRoute)), "")
        prefixes = tuple(key for key in routes if key.kind is ClaimKind.ROUTE)
        sources = (key.prefix for key in routes if key.kind is ClaimKind.SOURCE)
        allowed = tuple(one for one in sources if one not in prefixes)
        endpoint = SlimEndpoint(str(name), name.node, interface, prefixes, allowed)
        path = ENDPOINT.key(self._region, name)
        self._restored[path] = endpoint, max(owned.revision for owned in routes.values())
        return self.set_endpoint(path, endpoint)

    def set_unreadable(self, endpoints: frozenset[EndpointName], migrations: frozenset[EndpointName]) -> set[ClaimKey]:
        """Replace the sets of endpoints and migrations that exist with unreadable values (C39)."""
        touched: set[ClaimKey] = set()
        concerned = [path for name in self._migrations.set_unreadable(migrations) for path in self._existing(name)]
        if self._unexplained:
            self._unexplained = self._explicable(self._unexplained)
            still = {MIGRATION.key(self._region, name) for name in migrations}
            touched = touched.union(*map(self._end, self._assumed - still))
            self._assumed &= still
        if endpoints != self._unreadable:
            self._unreadable = endpoints
            for path in [path for path, (one, _) in self._restored.items() if one.name not in endpoints]:
                gone = self._is_from_journal(path)
                del self._restored[path]
                touched |= self.set_endpoint(path, None) if gone else set()
            touched |= self._assume_sources() if self._unexplained else set()
        return touched.union(*map(self._route, concerned))

    def _is_from_journal(self, path: bytes) -> bool:
        """Return whether the endpoint is known from the journal only."""
        return path in self._restored and self._endpoints.get(path) is self._restored[path][0]

    def revision(self, path: bytes) -> int:
        """mod_revision of the last readable version of an object."""
        return self._restored[path][1] if self._restored and self._is_from_journal(path) else self._revision_of(path)

    def host_revision(self, name: str) -> int:
        """mod_revision of a host's Node; 0 if there is none."""
        return self._revision_of(HOST.key(self._region, name))

    def rewritten(self) -> set[ClaimKey]:
        """Shared keys whose claimants have another rank without a change of content: the owner may differ."""
        claimants = {path for claims in self._owners.shared.values() for path in claims}
        before, self._claimant_ranks = self._claimant_ranks, {path: self._rank(path) for path in claimants}
        changed = [path for path, rank in self._claimant_ranks.items() if before.get(path) != rank]
        return {key for path in changed for key in self._owners.by_path[path] if key in self._owners.shared}

    def _rank(self, path: bytes) -> int:
        return Seniority(self._created_of(path), self.revision(path)).rank(restored=self.restored)

    def _end(self, path: bytes) -> set[ClaimKey]:
        move = self._migrations.get(path)
        if move is None:
            return set()
        self._migrations.put(path, None)
        return self._claim_arrival(path).union(*map(self._route, self._existing(move.target)))

    def _update_move(self, path: bytes) -> set[ClaimKey]:
        """Apply a change at one end of that migration."""
        move = self._migrations.get(path)
        if move is None:
            return set()
        return self._claim_arrival(path).union(*map(self._route, self._existing(move.target)))

    def _update_arrival(self, source: SlimEndpoint) -> set[ClaimKey]:
        """Apply a change of an endpoint elsewhere whose workload migrates here."""
        here = source.name._replace(node=self._here.host)
        about = self._migrations.about(source.name)
        return set[ClaimKey]().union(*map(self._update_move, about), *map(self._route, self._existing(here)))

    def _claim_arrival(self, path: bytes) -> set[ClaimKey]:
        arriving, metric = self._arriving(path), self._here.arrival_metric
        return self._owners.set_claims(path, () if arriving is None else self._local(arriving, metric))

    def _arriving(self, path: bytes) -> SlimEndpoint | None:
        """Return a workload that migrates here as it will stand here, where no endpoint here describes it itself."""
        move = self._migrations.get(path)
        if move is None or move.target.node != self._here.host or self._existing(move.target):
            return None
        return next((self._endpoints[each].at(move.target) for each in self._existing(move.source)), None)

    def _elsewhere(self, routes: Mapping[str, Set[ClaimKey]]) -> list[EndpointName]:
        """Endpoints on other hosts that are one of these workloads and have one of its routes."""
        if not routes:
            return []
        others = [one for one in self._endpoints.values() if one.node != self._here.host]
        found = [(one, routes.get(one.individual)) for one in others]
        return [one.name for one, its in found if its and not its.isdisjoint(one.prefixes)]

    def _existing(self, name: EndpointName) -> list[bytes]:
        """Store key of that endpoint, if it exists."""
        path = ENDPOINT.key(self._region, name)
        return [path] if path in self._endpoints else []

    def _set_own(self, own: Host | None) -> set[ClaimKey]:
        """Apply a change of our own Node. Our addresses decide how every other host is reached, and our tunnels are
        claims of ours. Without our Node the last known one still holds: a Node deleted by mistake must not move every
        route of this host."""
        if own is None:
            return set()
        self.own, here = own, self._configured.at(own)
        changed, self._here = here != self._here, here
        touched = self._claim_tunnels()
        if changed and here.routing is Routing.BGP:
            touched |= {key for key in self if key.kind is ClaimKind.INTERFACE}  # other uplinks have to forward
        others = [(path, host) for path, host in self._hosts.items() if host.metadata.name != here.host]
        return touched.union(*(self._set_peer(path, host.metadata.name, host) for path, host in others if changed))

    def _claim_tunnels(self) -> set[ClaimKey]:
        """Claim the tunnels of this host, in the families in which a peer is behind one or it has an address in it."""
        here, macs = self._here, self.macs()
        needed = [each for each in FAMILIES if self._tunnelled[each] or here.tunnel_address(each)]
        claims = [claim for each in needed for claim in tunnel_claims(here, each, macs[each])]
        return self._owners.set_claims(self._own_path, claims)

    def _set_peer(self, path: bytes, name: str, host: Host | None) -> set[ClaimKey]:
        before = self._peers.pop(name, None)
        after = None if host is None else peer(host, self._here)
        if after is not None:
            self._peers[name] = after
        if before == after:
            return set()
        touched = self._owners.set_claims(path, () if after is None else after.claims())
        touched |= self._count_tunnels(before, after)
        return touched.union(*(self._route(endpoint) for endpoint in self._on.get(name, ())))

    def _count_tunnels(self, before: Peer | None, after: Peer | None) -> set[ClaimKey]:
        """Count the peers behind each tunnel; claim the devices again if the first one came or the last one went."""
        had = +self._tunnelled
        self._tunnelled.subtract(before.tunnels() if before else ())
        self._tunnelled.update(after.tunnels() if after else ())
        return self._claim_tunnels() if had.keys() != (+self._tunnelled).keys() else set()

    def _route(self, path: bytes) -> set[ClaimKey]:
        endpoint = self._endpoints.get(path)
        return self._owners.set_claims(path, () if endpoint is None else self._routes(endpoint))

    def _routes(self, endpoint: SlimEndpoint) -> Iterable[tuple[ClaimKey, Claim]]:
        node = endpoint.node
        if node == self._here.host:
            return self._local(endpoint, self._here.arrival_metric if self._is_elsewhere(endpoint) else 0)
        return remote_routes(endpoint, self._peers[node]) if node in self._peers else ()

    def _local(self, endpoint: SlimEndpoint, metric: int | None) -> Iterable[tuple[ClaimKey, Claim]]:
        return chain(local_routes(endpoint, metric), local_setup(endpoint, self._here))

    def _is_elsewhere(self, endpoint: SlimEndpoint) -> bool:
        """Return whether the workload of an endpoint here must not be announced yet: while it migrates here, and after
        that for as long as the endpoint at the source exists, because the migration may have been cancelled."""
        if self._here.routing is Routing.MESH:
            return False
        if self._presence_at(ENDPOINT.key(self._region, endpoint.name)) is Presence.EXPECTED:
            return True
        others = (self._endpoints[path] for node, paths in self._on.items() if node != endpoint.node for path in paths)
        return any(one.individual == endpoint.individual for one in others)

    def _resolve(self, key: ClaimKey) -> ClaimConflict:
        claimants = [self._claimant(key, wanted) for wanted in self._owners.claimants(key)]
        return resolve(key, claimants, restored=self.restored)

    def _claimant(self, key: ClaimKey, wanted: SourcedClaim) -> Claimant:
        path, shape = wanted.path, wanted.claim.shape
        is_here = isinstance(shape, LocalRoute) and self._blocked_by(key, shape) is None
        return Claimant(wanted, self._identity(path), self._presence_at(path), self._rank(path), is_here)

    def _identity(self, path: bytes) -> Hashable:
        """Identity that stays the same wherever the workload is."""
        endpoint, move = self._endpoints.get(path), self._migrations.get(path)
        if endpoint is not None:
            return endpoint.individual
        return path if move is None else move.target.individual

    def _presence_at(self, path: bytes) -> Presence:
        if self._migrations.get(path) is not None:
            return Presence.EXPECTED
        endpoint = self._endpoints.get(path)
        if endpoint is None or not self._migrations or not self._migrations.is_expected(endpoint.name):
            return Presence.SETTLED
        move = self._migrations.towards(endpoint.name)
        if move is not None and not self._existing(move.source):
            return Presence.SOURCE_GONE
        return Presence.EXPECTED
