"""Brake: holds mass deletes, because a source that suddenly wants many deletes is more often broken than right.

Deletes are counted per kind over a sliding minute, not per plan, so that a thousand plans of one delete each count as
a thousand. Above the limits all deletes of that kind are held; creates and replaces pass. The brake releases a delete
by itself when a fresh, complete list, requested at least `confirm` after the delete was first held, still asks for it
and the share is below `unattended`. Above that share only an operator releases, either exactly the deletes that were
shown, or everything for a limited time. What is held stays held until that has happened or the delete is no longer
asked for: neither deletes that leave the window nor another gate that closes meanwhile release it (C63).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile.change import Change, K, Op, Outcome, V
from holdfast.reconcile.gate import BRAKE_GATE, Closed, Kinds, Plan, Reason


class BrakeReason(Reason):
    TOO_MANY = "too many deletes at once to apply without confirmation"
    ALMOST_ALL = "less than half would stay"


@dataclass(frozen=True, slots=True)
class BrakeLimits:
    """Limits above which the brake closes. Shares are of the objects present before the window began."""

    count: int = 20
    share: float = 0.10
    small: int = 4
    """Number of objects of a kind from which `keep` applies as well."""
    keep: float = 0.5
    window: Duration = Duration(seconds=60)
    confirm: Duration = Duration(seconds=60)
    unattended: float = 0.30
    """Share from which only an operator releases the deletes, however fresh the list."""

    def exceeded(self, going: int, of: int) -> BrakeReason | None:
        if going > self.count and going > self.share * of:
            return BrakeReason.TOO_MANY
        if of >= self.small and of - going < self.keep * of:
            return BrakeReason.ALMOST_ALL
        return None


class _Promise(NamedTuple):
    """Numbers under which a delete was first held: since when, why, and how many had gone in the window before."""

    since: Instant
    reason: Reason
    gone: int


class Brake(Generic[K, V]):
    """Gate that also counts: the loop must pass it every plan and every outcome (`note`)."""

    def __init__(self, name: str, kinds: Kinds[K], limits: BrakeLimits | None = None) -> None:
        self.name = name
        self.limits = limits or BrakeLimits()
        self._kinds = kinds
        self._deleted: dict[str, deque[Instant]] = {}
        self._promised: dict[K, _Promise] = {}
        self._held: set[K] = set()
        self._held_of: Counter[str] = Counter()
        self._since: dict[str, Instant] = {}
        self._listed = NEVER
        self._allowed: set[K] = set()
        self._allowed_until = NEVER

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.DELETE or not self.counts(change):
            return None
        kind = self._kinds.of(change.key)
        promise = self._promise(change.key) if self._promised else None
        gone = max(self._recent(kind, now), promise.gone if promise else 0)
        going = gone + tally.get(Op.DELETE, 0)
        of = max(have + gone, going)
        reason = self.exceeded(change, going, of) or (promise and promise.reason)
        if reason is None or self._allows(change.key, now):
            return None
        alone = going < self.limits.unattended * of
        if alone and self._confirmed(change.key):
            return None
        allow = f"holdfast gate allow {self.name} --once --reason …"
        opens = f"a fresh list {self.limits.confirm.seconds} s later that agrees, or: {allow}" if alone else allow
        detail = f"would delete {going:,} of {of:,} {kind} ({going / of:.1%})"
        return Closed(BRAKE_GATE, reason, self._since.get(kind, now), opens, detail)

    def counts(self, change: Change[K, V]) -> bool:
        """Return False for a delete that is no loss: it passes, and is not counted."""
        return True

    def uses_limit(self, change: Change[K, V]) -> bool:
        """Return False for a delete that, once applied, leaves the limit of later ones as it was."""
        return self.counts(change)

    def exceeded(self, change: Change[K, V], going: int, of: int) -> BrakeReason | None:
        """Return why `going` deletes are too many to let this one pass, or None. Subclasses may exempt a change."""
        return self.limits.exceeded(going, of)

    def note(self, event: Plan[K, V] | Outcome[K, V], now: Instant) -> None:
        if isinstance(event, Plan):
            self._note_plan(event, now)
        elif event.change.op is Op.DELETE and event.error is None:
            key = event.change.key
            if self._spends(event.change, now):
                self._deleted.setdefault(self._kinds.of(key), deque()).append(now)
            self._allowed.discard(key)
            self._release(key)
            self._promised.pop(key, None)

    def window(self, going: Iterable[Change[K, V]], now: Instant) -> Mapping[str, Counter[Instant]]:
        """Count the deletes of the window by kind and time, with those that are about to be applied."""
        found = {kind: Counter(times) for kind, times in self._deleted.items() if self._recent(kind, now)}
        for kind, count in self.spent(going, now).items():
            found.setdefault(kind, Counter())[now] += count
        return found

    def spent(self, going: Iterable[Change[K, V]], now: Instant) -> Counter[str]:
        """Count by kind the deletes among these changes that leave less of the limit to later ones."""
        return Counter(self._kinds.of(change.key) for change in going if self._spends(change, now))

    def recall(self, kind: str, at: Instant, count: int) -> None:
        """Add deletes that were applied before this process or this term began."""
        times = self._deleted.setdefault(kind, deque())
        self._deleted[kind] = deque(sorted([*times, *[at] * count]))

    def listed(self, asked: Instant) -> None:
        """Note that a complete, linearizable list of the source has arrived, requested at `asked`."""
        self._listed = max(self._listed, asked)

    def is_closed(self) -> bool:
        """True while it holds deletes."""
        return bool(self._held)

    def wants_list(self, now: Instant) -> bool:
        """True when a fresh list, requested now, could release a held delete."""
        confirm, promised = self.limits.confirm, self._promised
        return any(now - promised[key].since >= confirm and not self._confirmed(key) for key in self._held)

    def allow(self, until: Instant | None = None) -> int:
        """Release what is held now, or with `until` every delete until then. Returns how many are held."""
        if until is None:
            self._allowed.update(self._held)
        else:
            self._allowed_until = max(self._allowed_until, until)
        return len(self._held)

    def end_allowance(self) -> None:
        """End what an operator allowed for a time."""
        self._allowed_until = NEVER

    def revoke(self) -> bool:
        """Hold again what was released once and is not applied yet. Returns False if there is no such delete."""
        had, self._allowed = bool(self._allowed), set()
        return had

    def _spends(self, change: Change[K, V], now: Instant) -> bool:
        return change.op is Op.DELETE and self.uses_limit(change) and not self._allows(change.key, now)

    def _allows(self, key: K, now: Instant) -> bool:
        """Return whether an operator allowed this delete: once it is applied, it leaves the limit of later ones as it
        was."""
        return key in self._allowed or now < self._allowed_until

    def _note_plan(self, plan: Plan[K, V], now: Instant) -> None:
        held = {c.key: closed for c, closed in plan.held if closed.gate == BRAKE_GATE and c.op is Op.DELETE}
        settled = (self._held | self._promised.keys()) if plan.compared is None else plan.compared
        if self._held or self._promised or self._allowed:
            self._note_settled(plan, [key for key in settled if key not in held])
        for key, closed in held.items():
            if key not in self._held:
                self._held.add(key)
                self._held_of[self._kinds.of(key)] += 1
            if key not in self._promised:
                self._promised[key] = _Promise(now, closed.reason, self._recent(self._kinds.of(key), now))
        self._since = {kind: self._since.get(kind, now) for kind, count in self._held_of.items() if count > 0}

    def _note_settled(self, plan: Plan[K, V], settled: Iterable[K]) -> None:
        """Forget the holds of compared keys; of those that are no longer asked for also what was promised."""
        asked = {change.key for change, _ in plan.held if change.op is Op.DELETE}
        asked.update(change.key for change in plan.ready if change.op is Op.DELETE)
        for key in settled:
            self._release(key)
            if key not in asked:
                self._promised.pop(key, None)
                self._allowed.discard(key)

    def _release(self, key: K) -> None:
        if key in self._held:
            self._held.discard(key)
            self._held_of[self._kinds.of(key)] -= 1

    def _promise(self, key: K) -> _Promise | None:  # protection: C63
        """C63: return what a held delete was told; it stays held until that has happened."""
        return self._promised.get(key)

    def _confirmed(self, key: K) -> bool:
        promise = self._promised.get(key)
        return promise is not None and bool(self._listed) and self._listed - promise.since >= self.limits.confirm

    def _recent(self, kind: str, now: Instant) -> int:
        times = self._deleted.get(kind)
        if times is None:
            return 0
        while times and now - times[0] >= self.limits.window:
            times.popleft()
        return len(times)
