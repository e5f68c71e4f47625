"""Demand: what one source wants in this host's kernel, as claims, kept up object by object.

Decides who owns a claim that several live objects of the source make: the one with the higher mod_revision, and the
contest is named. A workload that is migrating is routed to where it is, by everyone but the host that it moves to.
It changes by whole objects only, and says which claims an object's change may have touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import msgspec

from holdfast.agent.claims import Claim, Key, Local, Sort
from holdfast.agent.mac import mac_of, tunnel_mac
from holdfast.agent.peers import FAMILIES, Here, Peer, local_routes, peer, remote_routes
from holdfast.model.endpoint import Endpoint, EndpointName
from holdfast.model.host import Host
from holdfast.model.migration import Migration

Revision = Callable[[bytes], int]
"""The mod_revision of a store key."""


class Wanted(msgspec.Struct, frozen=True, gc=False):
    """A claim with the store's object that makes it."""

    claim: Claim
    by: bytes


@dataclass(frozen=True, slots=True)
class Contest:
    """Several live objects claim one key; all but the first lose."""

    key: Key
    winner: Wanted
    losers: tuple[Wanted, ...]

    def __str__(self) -> str:
        others = " and ".join(_who(loser.claim) for loser in self.losers)
        return f"{self.key} is claimed by {_who(self.winner.claim)} and also by {others}; the newest object wins"


class Demand:
    """Store keys stand for objects."""

    def __init__(self, here: Here, revision: Revision = lambda _by: 0) -> None:
        self._given = here
        self._here = here
        self.revision = revision
        self.own: Host | None = None
        """What is said of this host itself."""
        self._peers: dict[str, Peer] = {}
        self._hosts: dict[bytes, Host] = {}
        self._endpoints: dict[bytes, Endpoint] = {}
        self._on: dict[str, list[bytes]] = {}
        self._moving: dict[bytes, EndpointName] = {}
        self._arriving: set[EndpointName] = set()
        self._made: dict[bytes, tuple[Key, ...]] = {}
        self._sole: dict[Key, Wanted] = {}
        self._contested: dict[Key, dict[bytes, Claim]] = {}
        self._doubted: set[bytes] = set()
        self._believed: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._sole) + len(self._contested)

    def __iter__(self) -> Iterator[Key]:
        yield from self._sole
        yield from self._contested

    def wanted(self, key: Key) -> Wanted | None:
        """Who owns that claim."""
        sole = self._sole.get(key)
        if sole is not None or key not in self._contested:
            return sole
        return self._contest(key).winner

    def contests(self) -> list[Contest]:
        found = [self._contest(key) for key in sorted(self._contested)]
        return [contest for contest in found if not self._arrives(contest.winner)]

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

    def host(self, by: bytes, host: Host | None) -> set[Key]:
        """That host has changed, or is gone."""
        known = self._hosts.pop(by, None) if host is None else host
        if known is None:
            return set()
        if host is not None:
            self._hosts[by] = host
        name = known.metadata.name
        return self._moved(host) if name == self._given.host else self._reached(by, name, host)

    def endpoint(self, by: bytes, endpoint: Endpoint | None) -> set[Key]:
        old = self._endpoints.pop(by, None)
        if old is not None:
            self._on[old.spec.node].remove(by)
        if endpoint is not None:
            self._endpoints[by] = endpoint
            self._on.setdefault(endpoint.spec.node, []).append(by)
        else:
            self._doubted.discard(by)
            self._believed.discard(by)
        return self._route(by)

    def migration(self, by: bytes, migration: Migration | None) -> set[Key]:
        """A workload is on its way to another host, or not any more."""
        target = None if migration is None else migration.target
        names = {name for name in (self._moving.pop(by, None), target) if name is not None}
        self._arriving -= names
        if target is not None:
            self._moving[by] = target
            self._arriving.add(target)
        return set().union(*(self._route(key) for name in names for key in self._named(name)))

    def twins(self, keys: Iterable[Key]) -> Iterator[tuple[bytes, EndpointName]]:
        """Endpoints that win one of these claims over the same workload on another host, neither doubted nor believed
        nor known to arrive."""
        for key in keys:
            if key not in self._contested:
                continue
            contest = self._contest(key)
            by = contest.winner.by
            winner = self._endpoints.get(by)
            if winner is None or self._is_weighed(contest.winner):
                continue
            others = [self._endpoints[loser.by] for loser in contest.losers if loser.by not in self._doubted]
            if any(other.name.individual == winner.name.individual for other in others):
                yield by, winner.name

    def _is_weighed(self, rival: Wanted) -> bool:
        return rival.by in self._doubted or rival.by in self._believed or self._arrives(rival)

    def doubt(self, by: bytes) -> None:
        """That endpoint gets nothing for now that another object claims."""
        self._doubted.add(by)

    def believe(self, by: bytes) -> set[Key]:
        """That endpoint is what it says, and is not doubted again."""
        self._doubted.discard(by)
        if by in self._endpoints:
            self._believed.add(by)
        return set(self._made.get(by, ()))

    def _named(self, name: EndpointName) -> list[bytes]:
        return [by for by in self._on.get(name.node, ()) if self._endpoints[by].name == name]

    def _moved(self, own: Host | None) -> set[Key]:
        """Our own addresses decide how every other host is reached, our own MACs whether our tunnels are as they must
        be: with another one everything on them has to be made again. Without our Node, what was known of us last still
        holds: one deleted by mistake must not move every route of this host."""
        if own is None:
            return set()
        macs = self.macs()
        self.own = own
        touched = set() if self.macs() == macs else {key for key in self if key.sort is Sort.FORWARDING}
        here = self._given.at(own)
        if here == self._here:
            return touched
        self._here = here
        others = [(by, host) for by, host in self._hosts.items() if host.metadata.name != here.host]
        return touched.union(*(self._reached(by, host.metadata.name, host) for by, host in others))

    def _reached(self, by: bytes, name: str, host: Host | None) -> set[Key]:
        before = self._peers.pop(name, None)
        after = None if host is None else peer(host, self._here)
        if after is not None:
            self._peers[name] = after
        if before == after:
            return set()
        touched = self._make(by, () if after is None else after.claims())
        return touched.union(*(self._route(endpoint) for endpoint in self._on.get(name, ())))

    def _route(self, by: bytes) -> set[Key]:
        endpoint = self._endpoints.get(by)
        return self._make(by, () if endpoint is None else self._routes(endpoint))

    def _routes(self, endpoint: Endpoint) -> Iterable[tuple[Key, Claim]]:
        node = endpoint.spec.node
        if node == self._here.host:
            return local_routes(endpoint)
        if node not in self._peers or endpoint.name in self._arriving:
            return ()
        return remote_routes(endpoint, self._peers[node])

    def _make(self, by: bytes, claims: Iterable[tuple[Key, Claim]]) -> set[Key]:
        """From now on that object makes exactly these claims."""
        made = dict(claims)
        before = self._made.pop(by, ())
        if made:
            self._made[by] = tuple(made)
        for key in before:
            self._withdraw(key, by)
        for key, claim in made.items():
            self._enter(key, by, claim)
        return {*before, *made}

    def _withdraw(self, key: Key, by: bytes) -> None:
        rivals = self._contested.get(key)
        if rivals is None:
            del self._sole[key]
            return
        del rivals[by]
        if len(rivals) == 1:
            del self._contested[key]
            [(last, claim)] = rivals.items()
            self._sole[key] = Wanted(claim, last)

    def _enter(self, key: Key, by: bytes, claim: Claim) -> None:
        if key in self._contested:
            self._contested[key][by] = claim
        elif (sole := self._sole.pop(key, None)) is not None:
            self._contested[key] = {sole.by: sole.claim, by: claim}
        else:
            self._sole[key] = Wanted(claim, by)

    def _contest(self, key: Key) -> Contest:
        rivals = [Wanted(claim, by) for by, claim in self._contested[key].items()]
        first, *rest = sorted(rivals, key=self._rank, reverse=True)
        return Contest(key, first, tuple(rest))

    def _rank(self, rival: Wanted) -> tuple[bool, bool, int, bytes]:
        return self._arrives(rival), rival.by not in self._doubted, self.revision(rival.by), rival.by

    def _arrives(self, rival: Wanted) -> bool:
        """Whether it is a workload on its way to this host, which is programmed here beside where it comes from."""
        endpoint = self._endpoints.get(rival.by)
        here = isinstance(rival.claim.shape, Local)
        return here and endpoint is not None and endpoint.name in self._arriving


def _who(claim: Claim) -> str:
    owner = claim.owner
    return f"endpoint {owner.endpoint} on {owner.host}" if owner.endpoint else f"host {owner.host}"
