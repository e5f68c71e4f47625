"""Demand: what one source wants in this host's kernel, as claims, kept up object by object.

Decides who owns a claim that several live objects of the source make: the one with the higher mod_revision, and the
contest is named. A workload that is migrating is routed to where it is, by everyone but the host that it moves to:
there, once its interface exists, it is programmed as its own endpoint there says or, where only the migration stands,
as the one that it comes from. What has ended here is let go when it is known how it ended. It changes by whole objects
only, and says which claims an object's change may have touched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set

from holdfast.agent.claims import Claim, ClaimKey, ClaimKind, LocalRoute, Shape, route
from holdfast.agent.desired.migration_query import MigrationQuery
from holdfast.agent.desired.migrations import Arrival, Migrations, Move, hostless, moved
from holdfast.agent.desired.ownership import Claimant, ClaimConflict, ClaimOwners, Presence, SourcedClaim, contest
from holdfast.agent.desired.peers import FAMILIES, LocalHost, Peer, local_routes, peer, remote_routes
from holdfast.agent.tunnel_mac import mac_of, tunnel_mac
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.host import Host
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.reconcile import Owned

Revision = Callable[[bytes], int]
"""The mod_revision of a store key."""
Obstacle = Callable[[ClaimKey, Shape], str | None]
"""Why something cannot be in the kernel now."""
Holder = Callable[[ClaimKey], str]
"""The name of the endpoint that has something now; none, where nobody has it."""


class SourceClaims:
    """Store keys stand for objects."""

    def __init__(self, here: LocalHost, region: Region, revision: Revision = lambda _by: 0) -> None:
        self._given = here
        self._region = region
        self._here = here
        self._written = revision
        self.obstacle: Obstacle = lambda _key, _shape: None
        """Asked of workloads on their way here: one without an interface is routed to where it still is."""
        self.holder: Holder = lambda _key: ""
        """Asked of what is contested: who has it need not be asked whether he may take it."""
        self.own: Host | None = None
        """What is said of this host itself."""
        self._peers: dict[str, Peer] = {}
        self._hosts: dict[bytes, Host] = {}
        self._endpoints: dict[bytes, Endpoint] = {}
        self._on: dict[str, list[bytes]] = {}
        self._moves = Migrations()
        self._unread: frozenset[EndpointName] = frozenset()
        self._recalled: dict[bytes, tuple[Endpoint, int]] = {}
        """Endpoints that cannot be read, as far as it is remembered what they were, and as of which revision."""
        self._kept: dict[str, set[ClaimKey]] = {}
        """What earlier lives have programmed here for workloads of which a migration that cannot be read says that they
        come here: from where is known once that can be read."""
        self._prefix = ENDPOINT.prefix(region)
        self._rivals = ClaimOwners()
        self._doubted: dict[bytes, set[ClaimKey]] = {}
        """Of each endpoint that is doubted, what it gets only if nobody else claims it: not what it had already."""
        self._believed: set[bytes] = set()
        self._rewritten: dict[bytes, int] = {}
        """At which revision the rivals of contested claims were last written, as far as that has been told."""

    def __len__(self) -> int:
        return len(self._rivals)

    def __iter__(self) -> Iterator[ClaimKey]:
        return iter(self._rivals)

    def wanted(self, key: ClaimKey) -> SourcedClaim | None:
        """Who owns that claim."""
        sole = self._rivals.sole.get(key)
        if sole is not None or key not in self._rivals.contested:
            return sole
        return self._contest(key).winner.wanted

    def contests(self) -> list[ClaimConflict]:
        """Those worth naming."""
        found = [self._contest(key) for key in sorted(self._rivals.contested)]
        return [dispute for each in found if (dispute := each.dispute()) is not None]

    def refusals(self) -> list[str]:
        """Sentences on hosts that cannot be programmed."""
        return sorted(each.refusal for each in self._peers.values() if each.refusal)

    def peers(self) -> int:
        return len(self._peers)

    def macs(self) -> dict[int, str]:
        """By which the others know our ends of the tunnel, by family."""
        own, name = self.own, self._given.host
        return {each: tunnel_mac(name, each) if own is None else mac_of(own, each) for each in FAMILIES}

    def on(self, host: str) -> list[Endpoint]:
        """The endpoints of that host."""
        return [self._endpoints[by] for by in sorted(self._on.get(host, ()))]

    def local(self) -> list[Endpoint]:
        """The endpoints of this host, with those that only a migration says are coming."""
        return [*self.on(self._here.host), *filter(None, (self._coming(by) for by, _ in self._moves))]

    def arrivals(self) -> list[Arrival]:
        """The workloads on their way to this host."""
        known = {one.name: one for one in self.local()} if self._moves else {}
        coming = [(by, move) for by, move in self._moves if move.target in known]
        return [Arrival(known[move.target], move.source.node, by in self._moves.over) for by, move in coming]

    def host(self, by: bytes, host: Host | None) -> set[ClaimKey]:
        """That host has changed, or is gone."""
        known = self._hosts.pop(by, None) if host is None else host
        if known is None:
            return set()
        if host is not None:
            self._hosts[by] = host
        name = known.metadata.name
        return self._readdressed(host) if name == self._given.host else self._reached(by, name, host)

    def endpoint(self, by: bytes, endpoint: Endpoint | None) -> set[ClaimKey]:
        old = self._endpoints.pop(by, None)
        if old is not None:
            self._on[old.spec.node].remove(by)
        if endpoint is not None:
            self._endpoints[by] = endpoint
            self._on.setdefault(endpoint.spec.node, []).append(by)
        else:
            self._doubted.pop(by, None)
            self._believed.discard(by)
        known = endpoint or old
        about = self._moves.about(known.name) if known is not None and self._moves else ()
        if endpoint is None and about and known is not None:
            self._moves.leave(known.name)
        return self._route(by).union(*(self._along(each) for each in about))

    def migration(self, by: bytes, migration: Migration | None) -> set[ClaimKey]:
        """A workload is on its way to another host, or not any more. Whether it has arrived or turned back is told by
        the endpoints, of which the word may be late: until then nothing of it changes (`settle`)."""
        if migration is None and self._is_in_question(by):
            self._moves.finish(by)
            return set()
        if migration is None or migration.source == migration.target:
            return self._end(by)
        self._moves.put(by, Move(migration.source, migration.target))
        return self._along(by)

    def questions(self) -> list[MigrationQuery]:
        """What the store has to be asked: about endpoints that are doubted, and migrations that are gone of which
        nobody knows how they ended."""
        doubted = [(by, self._endpoints[by]) for by in sorted(self._doubted)]
        unknown = [(by, one) for by, one in doubted if not self._moves.is_expected(one.name)]
        gone = [(by, move) for by in sorted(self._moves.over) if (move := self._moves.get(by)) is not None]
        return [
            *(MigrationQuery(by, one, (one.name,), (True,)) for by, one in unknown),
            *(MigrationQuery(by, move, (move.target, move.source), self._stand(move)) for by, move in gone),
        ]

    def settle(self, question: MigrationQuery) -> set[ClaimKey]:
        """The store has said that what is known here is so, if it is still what was asked about."""
        by, subject = question.by, question.subject
        if isinstance(subject, Move):
            is_it = self._moves.get(by) is subject and by in self._moves.over and self._stand(subject) == question.stand
            return self._end(by).union(*map(self._believe, self._named(subject.target))) if is_it else set()
        return self._believe(by) if self._endpoints.get(by) is subject else set()

    def recall(self, claims: Iterable[tuple[ClaimKey, Owned[Claim]]]) -> set[ClaimKey]:
        """What earlier lives have programmed. Of workloads of this host that are seen elsewhere too the migrations may
        be over while the word of their arrival is late. And what cannot be read now had been read (C39): as far as it
        is remembered, it counts, as old as it is."""
        kept: dict[str, set[ClaimKey]] = {}
        unread = self._unread_owners()
        known: dict[EndpointName, dict[ClaimKey, Owned[Claim]]] = {}
        for key, owned in claims:
            claim = owned.value
            if isinstance(claim.shape, LocalRoute):
                kept.setdefault(hostless(claim.owner.endpoint, self._here.host), set()).add(key)
            if claim.owner.endpoint in unread and self.holder(key) == claim.owner.endpoint:
                known.setdefault(unread[claim.owner.endpoint], {})[key] = owned
        self._kept = kept
        touched = set[ClaimKey]().union(*(self._recall(name, routes) for name, routes in known.items()))
        return touched | self._keep()

    def _keep(self) -> set[ClaimKey]:
        """What was kept here stays as if it arrived, until the store has said how its migration ended."""
        touched: set[ClaimKey] = set()
        for source in self._elsewhere(self._kept):
            move = Move(source, source._replace(node=self._here.host))
            by = MIGRATION.key(self._region, move.target)
            if self._moves.get(by) is None and not self._named(move.target):
                self._moves.put(by, move)
                self._moves.finish(by)
                touched |= self._along(by)
        return touched

    def _unread_owners(self) -> dict[str, EndpointName]:
        """Whose claims tell of an endpoint that cannot be read: its own, and those of a workload that only a migration
        brings here from there."""
        here = [move for _, move in self._moves if move.target.node == self._here.host]
        brought = [move for move in here if move.source in self._unread and not self._named(move.target)]
        return {str(move.target): move.source for move in brought} | {str(name): name for name in self._unread}

    def _recall(self, name: EndpointName, routes: Mapping[ClaimKey, Owned[Claim]]) -> set[ClaimKey]:
        shapes = [owned.value.shape for owned in routes.values()]
        interface = next((shape.interface for shape in shapes if isinstance(shape, LocalRoute)), "")
        prefixes = tuple(key.text for key in routes)
        endpoint = Endpoint.of(
            self._region, EndpointSpec(**name._asdict(), interface_name=interface, ip_networks=prefixes)
        )
        by = ENDPOINT.key(self._region, name)
        self._recalled[by] = endpoint, max(owned.revision for owned in routes.values())
        return self.endpoint(by, endpoint)

    def unreadable(self, endpoints: frozenset[EndpointName], migrations: frozenset[EndpointName]) -> set[ClaimKey]:
        """These are there, and nobody knows what they say (C39)."""
        touched: set[ClaimKey] = set()
        if endpoints != self._unread:
            self._unread = endpoints
            for by in [by for by, (one, _) in self._recalled.items() if one.name not in endpoints]:
                gone = self._is_recalled(by)
                del self._recalled[by]
                touched |= self.endpoint(by, None) if gone else set()
            touched |= self._keep() if self._kept else set()
        concerned = [by for name in self._moves.unread(migrations) for by in self._named(name)]
        if self._kept:
            expected = {name.individual for name in self._moves.unread_to(self._here.host)}
            self._kept = {individual: routes for individual, routes in self._kept.items() if individual in expected}
        return touched.union(*map(self._route, concerned))

    def _is_recalled(self, by: bytes) -> bool:
        """Whether that is only remembered."""
        return by in self._recalled and self._endpoints.get(by) is self._recalled[by][0]

    def revision(self, by: bytes) -> int:
        """When that object was last written, so that it could be read."""
        return self._recalled[by][1] if self._recalled and self._is_recalled(by) else self._written(by)

    def rewritten(self) -> set[ClaimKey]:
        """What is contested by objects that were written anew just as they were: nothing of them has changed, but they
        are newer now; or of which that is not known."""
        rivals = {by for claims in self._rivals.contested.values() for by in claims}
        before, self._rewritten = self._rewritten, {by: self.revision(by) for by in rivals}
        newer = [by for by, revision in self._rewritten.items() if before.get(by) != revision]
        return {key for by in newer for key in self._rivals.made[by] if key in self._rivals.contested}

    def twins(self, keys: Iterable[ClaimKey]) -> Iterator[tuple[bytes, EndpointName]]:
        """Endpoints that would take one of these claims from an older one of the same workload on another host, and are
        neither doubted nor believed nor known to be on their way."""
        for key in keys:
            if key not in self._rivals.contested:
                continue
            found = self._contest(key)
            winner, by = found.winner, found.winner.wanted.by
            if by not in self._endpoints or by in self._believed or winner.presence is not Presence.SETTLED:
                continue
            older = [one for one in found.losers if one.who == winner.who and one.revision <= winner.revision]
            if any(one.presence >= Presence.LEFT for one in older) and not self._has(key, by):
                yield by, self._endpoints[by].name

    def doubt(self, by: bytes) -> None:
        """That endpoint gets nothing for now that another object claims, beyond what it has."""
        made = self._rivals.made.get(by, ())
        self._doubted[by] = {key for key in made if not (self._has(key, by) and self._wins(key, by))}

    def disbelieve(self, keys: Iterable[ClaimKey]) -> None:
        """Whoever has lost one of these to another place of his workload is asked again before he takes it back."""
        for found in (self._contest(key) for key in keys if self._believed and key in self._rivals.contested):
            if found.winner.presence is Presence.SETTLED:
                lost = [one for one in found.losers if one.who == found.winner.who]
                self._believed.difference_update(one.wanted.by for one in lost if one.presence is Presence.SETTLED)

    def _believe(self, by: bytes) -> set[ClaimKey]:
        """That endpoint is what it says, and is not doubted again unless it loses to another place of its workload."""
        self._doubted.pop(by, None)
        self._believed.add(by)
        return set(self._rivals.made.get(by, ()))

    def _wins(self, key: ClaimKey, by: bytes) -> bool:
        wanted = self.wanted(key)
        return wanted is not None and wanted.by == by

    def _has(self, key: ClaimKey, by: bytes) -> bool:
        return by == self._prefix + self.holder(key).encode()

    def _stand(self, move: Move) -> tuple[bool, bool]:
        """Whether there is an endpoint where it goes, and where it comes from."""
        return bool(self._named(move.target)), bool(self._named(move.source))

    def _is_in_question(self, by: bytes) -> bool:
        """Whether it depends on that migration's end where packets go."""
        move = self._moves.get(by)
        if move is None or not self._named(move.source):
            return False
        return move.target.node == self._here.host or bool(self._named(move.target))

    def _end(self, by: bytes) -> set[ClaimKey]:
        move = self._moves.get(by)
        if move is None:
            return set()
        self._moves.put(by, None)
        return self._arrive(by).union(*map(self._route, self._named(move.target)))

    def _along(self, by: bytes) -> set[ClaimKey]:
        """One end of that migration has changed."""
        move = self._moves.get(by)
        if move is None:
            return set()
        if by in self._moves.over and not self._is_in_question(by):
            return self._end(by)
        return self._arrive(by).union(*map(self._route, self._named(move.target)))

    def _arrive(self, by: bytes) -> set[ClaimKey]:
        coming = self._coming(by)
        return self._rivals.make(by, () if coming is None else local_routes(coming))

    def _coming(self, by: bytes) -> Endpoint | None:
        """A workload on its way to this host as it will stand here, where no endpoint here says so itself."""
        move = self._moves.get(by)
        if move is None or move.target.node != self._here.host or self._named(move.target):
            return None
        return next((moved(self._endpoints[each], move.target) for each in self._named(move.source)), None)

    def _elsewhere(self, routes: Mapping[str, Set[ClaimKey]]) -> list[EndpointName]:
        """Those endpoints of other hosts that are one of these individuals, with one of its routes."""
        others = [one for one in self._endpoints.values() if one.spec.node != self._here.host]
        found = [(one, routes.get(hostless(one.metadata.name, one.spec.node))) for one in others]
        return [one.name for one, its in found if its and not its.isdisjoint(map(route, one.spec.ip_networks))]

    def _named(self, name: EndpointName) -> list[bytes]:
        """That endpoint, if it is there."""
        by = ENDPOINT.key(self._region, name)
        return [by] if by in self._endpoints else []

    def _readdressed(self, own: Host | None) -> set[ClaimKey]:
        """Our own addresses decide how every other host is reached, our own MACs whether our tunnels are as they must
        be: with another one everything on them has to be made again. Without our Node, what was known of us last still
        holds: one deleted by mistake must not move every route of this host."""
        if own is None:
            return set()
        macs = self.macs()
        self.own = own
        touched = set() if self.macs() == macs else {key for key in self if key.sort is ClaimKind.FORWARDING}
        here = self._given.at(own)
        if here == self._here:
            return touched
        self._here = here
        others = [(by, host) for by, host in self._hosts.items() if host.metadata.name != here.host]
        return touched.union(*(self._reached(by, host.metadata.name, host) for by, host in others))

    def _reached(self, by: bytes, name: str, host: Host | None) -> set[ClaimKey]:
        before = self._peers.pop(name, None)
        after = None if host is None else peer(host, self._here)
        if after is not None:
            self._peers[name] = after
        if before == after:
            return set()
        touched = self._rivals.make(by, () if after is None else after.claims())
        return touched.union(*(self._route(endpoint) for endpoint in self._on.get(name, ())))

    def _route(self, by: bytes) -> set[ClaimKey]:
        endpoint = self._endpoints.get(by)
        return self._rivals.make(by, () if endpoint is None else self._routes(endpoint))

    def _routes(self, endpoint: Endpoint) -> Iterable[tuple[ClaimKey, Claim]]:
        node = endpoint.spec.node
        if node == self._here.host:
            return local_routes(endpoint)
        return remote_routes(endpoint, self._peers[node]) if node in self._peers else ()

    def _contest(self, key: ClaimKey) -> ClaimConflict:
        return contest(key, (self._rival(key, wanted) for wanted in self._rivals.of(key)))

    def _rival(self, key: ClaimKey, wanted: SourcedClaim) -> Claimant:
        presence, shape = self._presence(wanted.by), wanted.claim.shape
        if presence is Presence.SETTLED and key in self._doubted.get(wanted.by, ()):
            presence = Presence.HELD if self._has(key, wanted.by) else Presence.DOUBTED
        is_coming = isinstance(shape, LocalRoute) and presence is not Presence.SETTLED  # also who is only doubted
        arrives = is_coming and self.obstacle(key, shape) is None
        return Claimant(wanted, self._who(wanted.by), presence, self.revision(wanted.by), arrives)

    def _who(self, by: bytes) -> Hashable:
        """What stays the same wherever it is."""
        endpoint, move = self._endpoints.get(by), self._moves.get(by)
        if endpoint is not None:
            return endpoint.name.individual
        return by if move is None else move.target.individual

    def _presence(self, by: bytes) -> Presence:
        if self._moves.get(by) is not None:
            return Presence.EXPECTED
        endpoint = self._endpoints.get(by)
        if endpoint is None or not self._moves or not self._moves.is_expected(endpoint.name):
            return Presence.SETTLED
        move = self._moves.to(endpoint.name)
        if move is not None and not self._named(move.source):
            return Presence.AWAITED
        return Presence.LEFT if move is not None and self._moves.has_left(move) else Presence.EXPECTED
