"""Views of the agent's state for `agent peers`, `agent pending`, `get routes` and `explain host`. Pure.

Ages are in seconds; reasons are the sentences of the gates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.agent.claims import KINDS, Claim, ClaimKey, ClaimKind, LocalRoute, Mode, NexthopEntry
from holdfast.agent.desired.migrations import Arrival
from holdfast.agent.desired.slim_endpoint import without_host
from holdfast.agent.pending_deletes import HandlerStatus
from holdfast.model.base.time import Instant
from holdfast.reconcile import Op, Outstanding, Owned
from holdfast.runtime.reconciler.outstanding import OutstandingChange, describe

OutstandingClaim = Outstanding[ClaimKey, Claim]


class PeerRow(msgspec.Struct, frozen=True):
    """Row of `agent peers`."""

    host: str
    reached: list[str]
    """Per family, as `vxlan 10.29.0.7` or `direct 192.0.2.7`."""
    routes: int
    objects: int
    source: str
    wanted: bool
    held: int = 0
    failed: int = 0
    missing: int = 0
    arriving: int = 0
    """Workloads that migrate from there to this host."""


class ObjectRow(msgspec.Struct, frozen=True):
    """Kernel object of a host, as `explain host` shows it."""

    key: str
    endpoint: str
    source: str
    revision: int
    wanted: bool
    missing: bool
    waiting: OutstandingChange | None = None
    arrival: str = ""
    """Set if its workload migrates here: from where."""


class RouteRow(msgspec.Struct, frozen=True):
    """Row of `get routes`."""

    key: str
    host: str
    endpoint: str
    missing: bool
    waiting: OutstandingChange | None


class PendingRow(msgspec.Struct, frozen=True):
    """Pending delete, with the status of each handler."""

    key: str
    host: str
    endpoint: str
    waiting: OutstandingChange | None
    handlers: list[HandlerStatus] = []
    arrival: str = ""


@dataclass(frozen=True, slots=True)
class AgentView:
    """Inputs of every view: present, wanted and outstanding objects."""

    present: Mapping[ClaimKey, Owned[Claim]]
    wanted: Mapping[ClaimKey, Owned[Claim]]
    outstanding: Mapping[ClaimKey, OutstandingClaim]
    now: Instant
    arrivals: Mapping[str, Arrival] = field(default_factory=dict)
    """Workloads that migrate to this host, by endpoint name without the host."""

    def peers(self, own: str) -> list[PeerRow]:
        """Every other host with a present or wanted object, by name."""
        keys: dict[str, set[ClaimKey]] = {}
        for objects in (self.present, self.wanted):
            for key, owned in objects.items():
                if (host := owned.value.owner.host) and host != own:
                    keys.setdefault(host, set()).add(key)
        return [self._peer(host, sorted(keys[host])) for host in sorted(keys)]

    def objects(self, host: str) -> list[ObjectRow]:
        """Every object of that host, in the order in which objects are created."""
        known = {**self.wanted, **self.present}
        keys = sorted(key for key, owned in known.items() if owned.value.owner.host == host)
        return [self._object(key, known[key]) for key in keys]

    def routes(self) -> list[RouteRow]:
        """Every route that is wanted or present, in numeric order of its prefix."""
        known = {**self.wanted, **self.present}
        return [self._route(key, known[key]) for key in sorted(known) if key.kind is ClaimKind.ROUTE]

    def of_endpoint(self, name: str) -> list[ObjectRow]:
        """Every object of that endpoint on this host: its routes, its interface's setup, and its guard."""
        known = {**self.wanted, **self.present}
        return [self._object(key, known[key]) for key in sorted(known) if known[key].value.owner.endpoint == name]

    def row(self, key: ClaimKey) -> ObjectRow:
        """Row of one object, including one that is neither present nor wanted but that another depends on."""
        known = self.present.get(key) or self.wanted.get(key)
        if known is None:
            return ObjectRow(str(key), "", "", 0, wanted=False, missing=True, waiting=self._waiting(key))
        return self._object(key, known)

    def pending(self, begun: Mapping[ClaimKey, Sequence[HandlerStatus]]) -> list[PendingRow]:
        """Deletes that wait for a gate or a handler, the oldest first."""
        deletes = {key for key, one in self.outstanding.items() if one.change.op is Op.DELETE} | begun.keys()
        rows = [self._pending(key, begun.get(key, ())) for key in sorted(deletes)]
        return sorted(rows, key=lambda row: -row.waiting.since_s if row.waiting else 0.0)

    def _peer(self, host: str, keys: Sequence[ClaimKey]) -> PeerRow:
        known = [(key, self.present.get(key) or self.wanted[key]) for key in keys]
        outstanding = [one for key in keys if (one := self.outstanding.get(key)) is not None]
        return PeerRow(
            host=host,
            reached=list(_reached(known)),
            routes=sum(key.kind is ClaimKind.ROUTE for key in keys),
            objects=len(keys),
            source=known[0][1].source,
            wanted=any(key in self.wanted and self.wanted[key].value.owner.host == host for key in keys),
            held=sum(one.is_held for one in outstanding),
            failed=sum(one.is_failed for one in outstanding),
            missing=sum(owned.value.missing for _, owned in known),
            arriving=sum(arrival.source == host for arrival in self.arrivals.values()),
        )

    def _route(self, key: ClaimKey, owned: Owned[Claim]) -> RouteRow:
        missing = owned.value.missing or key not in self.present
        return RouteRow(
            _shown(key, owned.value), owned.value.owner.host, owned.value.owner.endpoint, missing, self._waiting(key)
        )

    def _object(self, key: ClaimKey, owned: Owned[Claim]) -> ObjectRow:
        wanted = self.wanted.get(key)
        return ObjectRow(
            key=_shown(key, owned.value),
            endpoint=owned.value.owner.endpoint,
            source=owned.source,
            revision=owned.revision,
            wanted=wanted is not None and wanted.value.owner.host == owned.value.owner.host,
            missing=owned.value.missing or key not in self.present,
            waiting=self._waiting(key),
            arrival=self._arrival(key),
        )

    def _pending(self, key: ClaimKey, handlers: Sequence[HandlerStatus]) -> PendingRow:
        outstanding = self.outstanding.get(key)
        owned = self.present.get(key) or (outstanding.change.old if outstanding else None)
        owner = owned.value.owner if owned else None
        host, endpoint = (owner.host, owner.endpoint) if owner else ("", "")
        return PendingRow(str(key), host, endpoint, self._waiting(key), list(handlers), self._arrival(key))

    def _arrival(self, key: ClaimKey) -> str:
        """Describe the migration behind an object, including a route that still leads to the source because the
        interface is missing here."""
        owners = [owned.value.owner for owned in (self.wanted.get(key), self.present.get(key)) if owned is not None]
        workloads = [without_host(owner.endpoint, owner.host) for owner in owners if owner.endpoint]
        return next((str(self.arrivals[one]) for one in workloads if one in self.arrivals), "")

    def _waiting(self, key: ClaimKey) -> OutstandingChange | None:
        outstanding = self.outstanding.get(key)
        return None if outstanding is None else describe(outstanding, key=str(key), kind=KINDS.of(key), now=self.now)


def _reached(objects: Iterable[tuple[ClaimKey, Owned[Claim]]]) -> Iterable[str]:
    for key, owned in objects:
        if isinstance(owned.value.shape, NexthopEntry):
            mode = "vxlan" if owned.value.shape.mode is Mode.VXLAN else "direct"
            yield f"{mode} {key.text}"


def _shown(key: ClaimKey, claim: Claim) -> str:
    local = f" dev {claim.shape.interface}" if isinstance(claim.shape, LocalRoute) else ""
    return f"{key}{local}"
