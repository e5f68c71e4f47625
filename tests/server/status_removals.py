"""What stands in for a protection of the status workers that a fault test removes."""

from __future__ import annotations

from datetime import datetime


def read_aware_only(text: str) -> datetime:
    """Understands times with a zone only."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text} has no zone")
    return moment
