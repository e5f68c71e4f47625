"""View of an outstanding change: what `plan`, `explain`, `status` and `agent pending` show of it. Pure."""

from __future__ import annotations

import msgspec

from holdfast.model.base.time import Instant
from holdfast.reconcile import Outstanding
from holdfast.reconcile.change import K, V


class OutstandingChange(msgspec.Struct, frozen=True):
    """A change that has not been applied, since when, and why.

    `gate`, `reason`, its `label` and `opens` are set only while a gate holds it, `error` and `attempts` once an attempt
    has failed.
    """

    op: str
    key: str
    kind: str
    since_s: float
    why: str
    """One sentence for every place that shows the change."""
    gate: str = ""
    reason: str = ""
    opens: str = ""
    error: str = ""
    attempts: int = 0
    label: str = ""


def describe(outstanding: Outstanding[K, V], *, key: str, kind: str, now: Instant) -> OutstandingChange:
    """Describe a ledger entry; `key` and `kind` are the words of its place."""
    closed = outstanding.closed if outstanding.is_held else None
    return OutstandingChange(
        op=outstanding.change.op.name.lower(),
        key=key,
        kind=kind,
        since_s=round((now - outstanding.since).total_seconds(), 3),
        why=_why(outstanding, now),
        gate=closed.gate if closed else "",
        reason=closed.sentence if closed else "",
        opens=closed.opens if closed else "",
        error=outstanding.error or "",
        attempts=outstanding.attempts,
        label=closed.reason.label if closed else "",
    )


def _why(outstanding: Outstanding[K, V], now: Instant) -> str:
    if outstanding.closed is not None and outstanding.is_held:
        return f"held by {outstanding.closed.gate}: {outstanding.closed.sentence}"
    if outstanding.error is None:
        waits = outstanding.closed is not None
        return "waits for the retry of the other half of its move" if waits else "about to be applied"
    retry = outstanding.retry
    wait = f", retry in {(retry - now).total_seconds():.1f} s" if retry is not None and retry > now else ""
    return f"attempt {outstanding.attempts} failed{wait}: {outstanding.error}"
