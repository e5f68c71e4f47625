"""Brake: holds mass deletes, because a source that suddenly wants many deletes is more often broken than right.

Deletes are counted per kind over a sliding minute, not per plan, so that a thousand plans of one delete each count as
a thousand. Above the limits all deletes of that kind are held; creates and replaces pass. The brake releases a delete
by itself when a fresh, complete list, requested at least `confirm` after the delete was first held, still asks for it
and the share is below `unattended`. Above that share only an operator releases, either exactly the deletes that were
shown, or everything for a limited time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile.change import Change, K, Op, Outcome, V
from holdfast.reconcile.gate import Closed, Kinds, Plan, Reason


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


class Brake(Generic[K, V]):
    """Gate that also counts: the loop must pass it every plan and every outcome (`note`)."""

    def __init__(self, name: str, kinds: Kinds[K], limits: BrakeLimits | None = None) -> None:
        self.name = name
        self.limits = limits or BrakeLimits()
        self._kinds = kinds
        self._deleted: dict[str, deque[Instant]] = {}
        self._held: dict[K, Instant] = {}
        self._held_of: Counter[str] = Counter()
        self._since: dict[str, Instant] = {}
        self._listed = NEVER
        self._allowed: set[K] = set()
        self._allowed_until = NEVER

    def judge(self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        if change.op is not Op.DELETE:
            return None
        kind = self._kinds.of(change.key)
        gone = self._recent(kind, now)
        going = gone + tally.get(Op.DELETE, 0)
        of = max(have + gone, going)
        reason = self.exceeded(change, going, of)
        if reason is None or change.key in self._allowed or now < self._allowed_until:
            return None
        alone = going < self.limits.unattended * of
        if alone and self._confirmed(change.key):
            return None
        allow = f"holdfast allow {self.name} --once --reason …"
        opens = f"a fresh list {self.limits.confirm.seconds} s later that agrees, or: {allow}" if alone else allow
        detail = f"would delete {going:,} of {of:,} {kind} ({going / of:.1%})"
        return Closed("brake", reason, self._since.get(kind, now), opens, detail)

    def exceeded(self, change: Change[K, V], going: int, of: int) -> BrakeReason | None:
        """Return why `going` deletes are too many to let this one pass, or None. Subclasses may exempt a change."""
        return self.limits.exceeded(going, of)

    def note(self, event: Plan[K, V] | Outcome[K, V], now: Instant) -> None:
        if isinstance(event, Plan):
            self._note_plan(event, now)
        elif event.change.op is Op.DELETE and event.error is None:
            self._deleted.setdefault(self._kinds.of(event.change.key), deque()).append(now)
            self._allowed.discard(event.change.key)

    def listed(self, asked: Instant) -> None:
        """Note that a complete, linearizable list of the source has arrived, requested at `asked`."""
        self._listed = max(self._listed, asked)

    def wants_list(self, now: Instant) -> bool:
        """True when a fresh list, requested now, could release a held delete."""
        return any(now - since >= self.limits.confirm and not self._confirmed(key) for key, since in self._held.items())

    def allow(self, until: Instant | None = None) -> int:
        """Release what is held now, or with `until` every delete until then. Returns how many are held."""
        if until is None:
            self._allowed.update(self._held)
        else:
            self._allowed_until = max(self._allowed_until, until)
        return len(self._held)

    def _note_plan(self, plan: Plan[K, V], now: Instant) -> None:
        held = [change.key for change, closed in plan.held if closed.gate == "brake"]
        # A compared key that is no longer held starts over if it is ever held again.
        still = set(held)
        settled = list(self._held) if plan.compared is None else plan.compared
        for key in settled:
            if key not in still and self._held.pop(key, None) is not None:
                self._held_of[self._kinds.of(key)] -= 1
        if self._allowed:
            going = still | {change.key for change in plan.ready if change.op is Op.DELETE}
            self._allowed.difference_update([key for key in settled if key not in going])
        for key in held:
            if key not in self._held:
                self._held[key] = now
                self._held_of[self._kinds.of(key)] += 1
        self._since = {kind: self._since.get(kind, now) for kind, count in self._held_of.items() if count > 0}

    def _confirmed(self, key: K) -> bool:
        since = self._held.get(key)
        return since is not None and bool(self._listed) and self._listed - since >= self.limits.confirm

    def _recent(self, kind: str, now: Instant) -> int:
        times = self._deleted.get(kind)
        if times is None:
            return 0
        while times and now - times[0] >= self.limits.window:
            times.popleft()
        return len(times)
