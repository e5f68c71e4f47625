"""Slow start: a backend that has just come up gets its weight in ten steps, not all at once.

A slow start belongs to a frontend and a backend, and its whole state is the instant at which it began. After a restart
it continues from the weight found in the dataplane (B23): `resumed` gives the start that leads to that weight now.
It has steps, not a slope: every step moves flows, and a restart must find exactly a weight that was programmed.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.base.time import NEVER, Duration, Instant

STEPS = 10

DONE = NEVER
"""Start of a slow start that is over, or never began."""


def weight(full: int, began: Instant, length: Duration, now: Instant) -> int:
    """Weight at this moment; never 0 for a backend whose full weight is above 0."""
    return _at(full, _step(began, length, now))


def next_step(began: Instant, length: Duration, now: Instant) -> Instant | None:
    """Instant of the next step; None when the slow start is over."""
    step = _step(began, length, now)
    return None if step >= STEPS else began + length * step / STEPS


def weights(full: int) -> list[int]:
    """Weight in each step."""
    return [_at(full, step) for step in range(1, STEPS + 1)]


def resumed(weights: Sequence[int], found: int, length: Duration, now: Instant) -> Instant:
    """Start that leads to the found weight now, given the weight in each step; `DONE` when that is the full weight."""
    full = weights[-1]
    if not length or found >= full:
        return DONE
    fitting = [step for step, weight in enumerate(weights, 1) if weight == found]
    step = max(fitting, default=max(1, STEPS * found // max(full, 1)))
    return DONE if step >= STEPS else now - length * (step - 1) / STEPS


def _step(began: Instant, length: Duration, now: Instant) -> int:
    if not began or not length or now - began >= length:
        return STEPS
    return 1 + (now - began) * STEPS // length


def _at(full: int, step: int) -> int:
    return -(-full * step // STEPS)
