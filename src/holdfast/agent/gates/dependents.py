"""Dependents gate: holds a delete while other objects depend on it, and an object until the one it depends on is there.

The kernel deletes the routes of a nexthop together with the nexthop. So nothing is deleted while a present object
depends on it, even when that dependent is itself held: otherwise a brake on routes would protect nothing. And nothing
is created on or moves onto a missing object: a peer that changes its address keeps its routes, which move one by one,
and a route whose nexthop went with the uplink waits for that nexthop, not for a retry (N20).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.agent.claims import GUARD_KINDS, Claim, ClaimKey, ClaimKind, depends_on, guarded, interface_name
from holdfast.agent.present import Present
from holdfast.model.base.time import NEVER, Instant
from holdfast.reconcile import Change, Closed, Op, Reason

IsBackingOff = Callable[[Change[ClaimKey, Claim], Instant], bool]
"""Returns whether a change failed a moment ago and is not tried now."""


class DependentsReason(Reason):
    HAS_DEPENDENTS = "other objects in the kernel still depend on it"
    DEPENDENCY_MISSING = "the object that it depends on is not in the kernel"


@dataclass(slots=True)
class _Judged:
    """Answers of one instant. Each refusal is built once: when a tenth of a fleet goes, thousands wait for the same
    reason."""

    at: Instant = NEVER
    coming: set[ClaimKey] = field(default_factory=set)
    """Objects that passed: they are created before whatever is judged after them."""
    refusals: dict[object, Closed] = field(default_factory=dict)


@dataclass(slots=True)
class DependentsGate:
    present: Present
    is_backing_off: IsBackingOff = lambda _change, _now: False
    guards: bool = True
    """The guard is on."""
    is_wanted: Callable[[ClaimKey], bool] = lambda _key: True
    _judged: _Judged = field(default_factory=_Judged)

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if self._judged.at != now:
            self._judged = _Judged(now)
        if change.new is None:
            if change.key.kind in GUARD_KINDS and not self.guards:
                return None  # the guard goes as a whole, while what it guarded stays
            # protection: N9
            count = self.present.dependents(change.key)
            return self._has_dependents(count, now) if count else self._still_guarded(change.key, now)
        for dependency in depends_on(change.key, change.new.value.shape):
            if self.is_missing(dependency):
                self.present.wait_for(change.key, dependency)
                return self._dependency_missing(dependency, now)
        if change.key.kind is not ClaimKind.ROUTE and not self.is_backing_off(change, now):
            self._judged.coming.add(change.key)
        return None

    def _still_guarded(self, key: ClaimKey, now: Instant) -> Closed | None:
        """Hold a source while its interface is still guarded and is not to be: without sources it could send nothing.
        An interface that stays guarded loses single sources at once."""
        if key.kind is not ClaimKind.SOURCE:
            return None
        interface = guarded(interface_name(key))
        if interface not in self.present or self.is_wanted(interface):
            return None
        self.present.follow(key, interface)
        return self._has_dependents(1, now)

    def is_missing(self, dependency: ClaimKey) -> bool:  # protection: N20
        """Return whether an object is neither in the kernel nor created earlier in the same plan."""
        return not self.present.is_programmed(dependency) and dependency not in self._judged.coming

    def _has_dependents(self, count: int, now: Instant) -> Closed:
        refusal = self._judged.refusals.get(count)
        if refusal is None:
            detail = f"{count:,} object{'s' * (count != 1)} in the kernel"
            refusal = Closed("dependents", DependentsReason.HAS_DEPENDENTS, now, "wait until they are deleted", detail)
            self._judged.refusals[count] = refusal
        return refusal

    def _dependency_missing(self, dependency: ClaimKey, now: Instant) -> Closed:
        refusal = self._judged.refusals.get(dependency)
        if refusal is None:
            opens = f"wait until {dependency} is created"
            refusal = Closed("dependents", DependentsReason.DEPENDENCY_MISSING, now, opens, str(dependency))
            self._judged.refusals[dependency] = refusal
        return refusal
