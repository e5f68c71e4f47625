"""Slow start: a backend that has just come up gets its weight in ten steps, not all at once.

The ramp belongs to a frontend and a backend, and is nothing but the instant at which it began. After a restart it goes
on from the weight that the dataplane was found with (B23): `resumed` gives the beginning that leads to that weight now.
Steps, not a slope: every step moves flows, and a restart must meet exactly the weight that was programmed.
"""

from __future__ import annotations

from holdfast.model.base.time import NEVER, Duration, Instant

STEPS = 10

DONE = NEVER
"""The beginning of a ramp that is over, or never was one."""


def weight(full: int, began: Instant, length: Duration, now: Instant) -> int:
    """The weight at this moment of a ramp; never 0 for a backend that has one."""
    return _at(full, _step(began, length, now))


def next_step(began: Instant, length: Duration, now: Instant) -> Instant | None:
    """When the weight changes by itself for the next time; None when the ramp is over."""
    step = _step(began, length, now)
    return None if step >= STEPS else began + length * step / STEPS


def resumed(full: int, found: int, length: Duration, now: Instant) -> Instant:
    """The beginning of a ramp that has come to the weight that was found; `DONE` when it has come to its end."""
    if not length or found >= full:
        return DONE
    fitting = [step for step in range(1, STEPS + 1) if _at(full, step) == found]
    step = max(fitting, default=max(1, STEPS * found // max(full, 1)))
    return DONE if step >= STEPS else now - length * (step - 1) / STEPS


def _step(began: Instant, length: Duration, now: Instant) -> int:
    if not began or not length or now - began >= length:
        return STEPS
    return 1 + (now - began) * STEPS // length


def _at(full: int, step: int) -> int:
    return -(-full * step // STEPS)
