"""Identity gates of a server: the syncer's, and that of the status workers, which read the syncer's verdict.

One worker of a server judges, the syncer; it raises the inventory's fence once per term and shows epoch, term and
verdict on the board. Everybody else reads that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.inventory.api import Fence
from holdfast.model.base.time import NEVER, Instant
from holdfast.reconcile import Change, Closed, Op
from holdfast.reconcile.change import K, V
from holdfast.runtime.daemon.board import Cell
from holdfast.server.identity.verdict import REPORTS_RETURN, FleetIdentityReason, IdentityVerdict, closed_by
from holdfast.store.api import Entry

IDENTITY_CELL = "identity"
"""Cell of the board in which the syncer shows an `IdentityCell`."""


class IdentityCell(msgspec.Struct, frozen=True):
    """Published on the board by the leader's syncer."""

    term: int
    epoch: int
    closed: str = ""
    """Name of the `FleetIdentityReason` for which nothing is written; empty if the fence is raised and all is well."""
    read: Instant = NEVER
    """Time at which the syncer began to read both sides for this verdict."""
    changes: int = 0
    """Number of times that the verdict has changed in this term."""


@dataclass
class FleetIdentityGate:
    """Gate of the syncer, closed until inventory and store have been compared.

    A restored store is refilled: creates, replaces and moves pass, deletes wait. With a restored inventory only what
    was edited after the verdict passes. `adopting` is set while an operator's adoption is carried out.
    """

    wanted_at: Callable[[bytes], bytes | None] = lambda _key: None
    """Returns the other key under which the object of a key is wanted now: then its delete is half of a move."""
    edited_at: Callable[[bytes], int] = lambda _key: 0
    """Returns the revision at which the inventory gave up a key, by a delete or a move; 0 if it did not."""
    verdict: IdentityVerdict = field(default=IdentityVerdict(FleetIdentityReason.UNKNOWN))
    since: Instant = NEVER
    adopting: bool = False

    def note(self, verdict: IdentityVerdict, now: Instant) -> bool:
        """Take the latest verdict. Returns whether it differs from the one before."""
        changed = verdict.closed is not self.verdict.closed or not self.since
        if changed:
            self.since = now
        self.verdict = verdict
        return changed

    def is_open(self, now: Instant) -> bool:
        return self.verdict.closed is None

    def judge(  # protection: C27
        self, change: Change[bytes, Entry], tally: Mapping[Op, int], have: int, now: Instant
    ) -> Closed | None:
        reason = self.verdict.closed
        if reason is None or self._passes(reason, change):
            return None
        return closed_by(reason, self.since or now, self.verdict.sentence)

    def _passes(self, reason: FleetIdentityReason, change: Change[bytes, Entry]) -> bool:
        match reason:
            case FleetIdentityReason.STORE_RESTORED | FleetIdentityReason.FILLING:
                return change.op is not Op.DELETE or self.adopting or self.wanted_at(change.key) is not None
            case FleetIdentityReason.INVENTORY_RESTORED:
                return self.adopting or self._edited_after(change, self.verdict.revision)
        return False

    def _edited_after(self, change: Change[bytes, Entry], revision: int) -> bool:  # protection: C40
        """True if the object was edited in the inventory after that revision."""
        return (self.edited_at(change.key) if change.new is None else change.new.revision) > revision


@dataclass
class StatusIdentityGate:
    """Gate of a status worker: while the identity of the store is in doubt, a missing key means nothing (C61). It is
    in doubt after a list that lacks what came before, until the syncer has judged the store that answers now. After
    that agents write again what the store has lost, so for a while a missing report still means nothing."""

    cell: Cell[IdentityCell]
    fence: Fence
    doubted: Instant = NEVER
    """Time at which the identity was last in doubt."""
    since: Instant = NEVER
    _has_report: Callable[[Any], bool] = lambda _key: True
    _count: Callable[[], int] = lambda: 0
    _rewinds: int = 0
    _listed: Instant = NEVER

    def follow(self, rewinds: Callable[[], int], has_report: Callable[[Any], bool]) -> None:
        """Count such lists from now on: the store that a term begins with was judged. `has_report` tells whether the
        store has the report that a row is about."""
        self._count, self._rewinds, self._has_report = rewinds, rewinds(), has_report

    def is_open(self, now: Instant) -> bool:
        """True if every change passes: the identity is known, and agents have had the time to report again."""
        return self._is_known(now) and not self._awaits_reports(now)

    def _awaits_reports(self, now: Instant) -> bool:
        return bool(self.doubted) and now - self.doubted < REPORTS_RETURN

    def _is_known(self, now: Instant) -> bool:
        shown = self.cell.read()
        # With another term on the board ours is over, which the fence says better.
        is_over = shown is not None and shown.term != self.fence.term
        ours = self.fence.term, self.fence.epoch, ""
        is_ours = shown is not None and (shown.term, shown.epoch, shown.closed) == ours
        is_known = is_over or (is_ours and shown is not None and self._is_judged(shown, now))
        self.since = NEVER if is_known else self.since or now
        self.doubted = self.doubted if is_known else now
        return is_known

    def _is_judged(self, shown: IdentityCell, now: Instant) -> bool:  # protection: C61
        """True if the verdict was read after the last list that lacks what came before."""
        rewinds = self._count()
        if rewinds != self._rewinds:
            self._rewinds, self._listed = rewinds, now
        return shown.read >= self._listed

    def judge(  # protection: C61
        self, change: Change[K, V], tally: Mapping[Op, int], have: int, now: Instant
    ) -> Closed | None:
        if self._is_known(now):
            reason = FleetIdentityReason.REPORT_MISSING
            return closed_by(reason, self.doubted) if self._may_return(change, now) else None
        shown = self.cell.read()
        reason = (
            FleetIdentityReason[shown.closed] if shown is not None and shown.closed else FleetIdentityReason.UNKNOWN
        )
        return closed_by(reason, self.since)

    def _may_return(self, change: Change[K, V], now: Instant) -> bool:  # protection: C61
        """True if the row follows from a report that its agent may not have had the time to write again."""
        return self._awaits_reports(now) and change.op is Op.REPLACE and not self._has_report(change.key)
