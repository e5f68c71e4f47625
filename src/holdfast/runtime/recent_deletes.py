"""Deletes of the last hour, counted in the decision logs: a mass delete must not look like health (C64).

The records of a file are in the order of their time, so that only the end of a file is read, however large it is.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path

from holdfast.runtime.decision_log import decode, segments, workers_in

PERIOD = timedelta(hours=1)
_DELETE, _APPLIED = b'"op":"delete"', b'"outcome":"applied"'
_TIME = len(b'{"time":"')


def recent_deletes(folder: Path, now: datetime, role: str = "") -> Mapping[str, int]:
    """Return the number of applied deletes of the last hour, by kind; with a role only those of its daemon."""
    since = (now - PERIOD).isoformat().encode()[:19]
    found: Counter[str] = Counter()
    for worker in workers_in(folder, role):
        for path in reversed(segments(folder, worker)):
            is_older = _count(path, since, found)
            if is_older:
                break
    return found


def _count(path: Path, since: bytes, found: Counter[str]) -> bool:
    """Count the deletes of one file; return True if the file begins before the period."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            start = _first_since(text, since)
            for line in text[start:].split(b"\n"):
                if _DELETE in line and _APPLIED in line and (decision := decode(line)) is not None:
                    found[decision.kind or "objects"] += decision.count
            return start > 0
    except (FileNotFoundError, ValueError):  # the writer deleted it meanwhile, or has not written to it yet
        return False


def _first_since(text: mmap.mmap, since: bytes) -> int:
    """Return the position of the first line at or after that time, by bisection."""
    low, high = 0, len(text)
    while low < high:
        middle = text.rfind(b"\n", low, (low + high) // 2) + 1 or low
        if middle < low:
            middle = low
        end = text.find(b"\n", middle, high)
        after = high if end < 0 else end + 1
        if text[middle + _TIME : middle + _TIME + len(since)] < since:
            low = after
        else:
            high = middle
    return low
