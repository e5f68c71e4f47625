"""Numbers and times as people read them, the same everywhere."""

from __future__ import annotations


def short(seconds: float) -> str:
    """0.4 s, 3m34s, 2h05m, 2d13h."""
    if seconds < 59.95:  # above, it would read 60.0 s
        return f"{seconds:.1f} s"
    whole = int(seconds + 0.05)
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86_400:
        return f"{whole // 3_600}h{whole % 3_600 // 60:02d}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3_600:02d}h"


def clock(seconds: float) -> str:
    """00:03:34."""
    whole = int(seconds)
    return f"{whole // 3_600:02d}:{whole % 3_600 // 60:02d}:{whole % 60:02d}"


def count(number: int | None) -> str:
    """34,812, or – where there is nothing to count."""
    return "–" if number is None else f"{number:,}"
