"""Witness of removals: nothing goes that the people did not ask for, at any moment and whatever is restored or paused.

Judges by what was asked for since the world began, never by what a daemon can know at a moment: a workload that has
stayed where it was made, a host, a frontend that was never withdrawn and a backend that has always answered have no
reason to go from a store, a kernel or a table, however old the view is by which a daemon acts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.agent.claims import ClaimKey, ClaimKind, route
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Value, VipKey
from holdfast.inventory.changes import ChangeKind, Edit
from holdfast.model.balancing import FRONTEND
from holdfast.model.calico.endpoint import Endpoint
from holdfast.reconcile import Change
from holdfast.testing.fakes.dataplane import FakeDataplane
from holdfast.testing.fakes.kernel import FakeKernel

Fail = Callable[[str], None]


@dataclass
class Asked:
    """Everything that the people ever asked to go."""

    keys: set[bytes] = field(default_factory=set)
    """Keys of objects that were deleted or moved to another key."""
    routes: set[ClaimKey] = field(default_factory=set)
    """Routes of workloads that moved or went."""
    ports: set[int] = field(default_factory=set)
    """Ports of frontends that were withdrawn, or that serve without the backend that always answers."""
    wanted: dict[str, bytes] = field(default_factory=dict)
    """Keys of what the people want now, by kind and name."""

    def note(self, edits: Sequence[Edit]) -> None:
        """Take over edits that the inventory has acknowledged."""
        for one in edits:
            name = f"{one.kind.name} {one.name}"
            if one.new is None:
                self.wanted.pop(name, None)
            else:
                self.wanted[name] = one.key
            if one.did in (ChangeKind.DELETED, ChangeKind.MOVED) and one.old_key is not None:
                self.keys.add(one.old_key)
                self._note_routes(one)
                if one.kind is FRONTEND:
                    self.ports.add(80 + int(one.name.removeprefix("f")))

    def _note_routes(self, one: Edit) -> None:
        if one.old is None or one.old_key is None:
            return
        before = one.kind.decode(one.old_key, one.old)
        if isinstance(before, Endpoint):
            self.routes |= {route(prefix) for prefix in before.spec.ip_networks}


@dataclass
class WitnessedKernel(FakeKernel):
    """A kernel that fails the world when the agent takes a route away that nobody asked to go."""

    asked: Asked = field(default_factory=Asked)
    fail: Fail = lambda _why: None

    def _applied(self, change: ClaimChange) -> str | None:
        if change.new is not None:
            return super()._applied(change)
        before = [key for key in self.objects if key.kind is ClaimKind.ROUTE]
        answer = super()._applied(change)
        for key in before:
            if key not in self.objects and key not in self.asked.routes:
                self.fail(f"{key} was taken away with {change.key}, and nobody asked for it")
        return answer


@dataclass
class WitnessedTable(FakeDataplane):
    """A table that fails the world when a frontend goes that was never withdrawn, or when the backend that always
    answers goes out of one."""

    asked: Asked = field(default_factory=Asked)
    always: BackendId = NO_BACKEND
    """The backend that has always answered, and that every frontend has."""
    fail: Fail = lambda _why: None

    def _applied(self, change: Change[VipKey, Value]) -> str | None:
        before = self._serves(change.key)
        answer = super()._applied(change)
        if change.key.vip.port in self.asked.ports:
            return answer
        if change.key.backend == NO_BACKEND and change.key not in self.objects:
            self.fail(f"{change.key} was taken away, and nobody withdrew it")
        elif before and not self._serves(change.key):
            self.fail(f"{change.key} serves no more, and that backend has always answered")
        return answer

    def _serves(self, key: VipKey) -> bool:
        held = self.objects.get(VipKey(key.vip, self.always))
        return isinstance(held, BackendEntry) and held.weight > 0
