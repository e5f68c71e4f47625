"""Decision: one change that a worker applied, held or failed to apply, as the decision log and `history` have it."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Decision(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One change that was applied, held or failed, and why."""

    time: datetime
    worker: str
    op: str
    """delete, replace, create, hold; `worker` for the records of the supervisor."""
    key: str
    outcome: str
    """applied, failed, held, or the event of a worker."""
    sentence: str
    kind: str = ""
    old: str = ""
    """Owner of the old value: source@revision."""
    new: str = ""
    revision: int = 0
    term: int = 0
    gate: str = ""
    reason: str = ""
    count: int = 1
    """Number of objects that the record stands for (creates: one record per batch)."""
