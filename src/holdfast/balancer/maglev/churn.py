"""Churn: the number of buckets that a change moves, predicted before it is made.

A bucket is moved when it had a backend and gets another one, or none: new flows in it go to another backend than
before. Buckets of an empty table are not moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.balancer.maglev import table as maglev


@dataclass(frozen=True, slots=True)
class Churn:
    """Moved buckets of one VIP, or of several together."""

    moved: int = 0
    buckets: int = 0

    @property
    def share(self) -> float:
        """Share of new flows that go to another backend."""
        return self.moved / self.buckets if self.buckets else 0.0

    def __add__(self, other: Churn) -> Churn:
        return Churn(self.moved + other.moved, self.buckets + other.buckets)

    def __str__(self) -> str:
        return f"{self.moved:,} of {self.buckets:,} buckets, {self.share:.2%} of new flows"


def has_flows(weights: maglev.Weights) -> bool:
    """Tell whether any backend gets flows."""
    return any(weight.effective for weight in weights.values())


def predicted(before: maglev.Weights, after: maglev.Weights, size: int) -> Churn:
    """Count the buckets that move between two sets of weights."""
    if not has_flows(before) or before == after:
        return Churn(0, size)
    old_backends, old = maglev.table(before, size)
    new_backends, new = maglev.table(after, size)
    index_of = {backend: index for index, backend in enumerate(new_backends)}
    # Maps old indexes to new ones, so that tables with different backends can be compared.
    now = np.asarray([index_of.get(backend, -2) for backend in old_backends], np.int32)
    return Churn(int(np.count_nonzero(now[old] != new)), size)
