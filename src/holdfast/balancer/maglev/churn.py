"""Churn: how many buckets a change moves, known before it is made.

A bucket that had a backend and gets another one, or none, is moved: new flows that fall into it go elsewhere than their
predecessors did. Buckets of a table that served nobody are not. Building tables takes a while; where many change at
once, what an ideal table would move is `estimated` from the weights alone, which is never more than what is moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.balancer.maglev import table as maglev


@dataclass(frozen=True, slots=True)
class Churn:
    """Of one VIP, or summed up over several."""

    moved: int = 0
    buckets: int = 0

    @property
    def share(self) -> float:
        """The share of new flows that go elsewhere."""
        return self.moved / self.buckets if self.buckets else 0.0

    def __add__(self, other: Churn) -> Churn:
        return Churn(self.moved + other.moved, self.buckets + other.buckets)

    def __str__(self) -> str:
        return f"{self.moved:,} of {self.buckets:,} buckets, {self.share:.2%} of new flows"


def predicted(before: maglev.Weights, after: maglev.Weights, size: int = maglev.DEFAULT_SIZE) -> Churn:
    """What it takes to get from one set of weights to another."""
    if not any(before.values()) or before == after:
        return Churn(0, size)
    were, old = maglev.table(before, size)
    are, new = maglev.table(after, size)
    place = {backend: index for index, backend in enumerate(are)}
    # The place that each former owner has now, so that tables with different backends can be compared.
    now = np.asarray([place.get(backend, -2) for backend in were], np.int32)
    return Churn(int(np.count_nonzero(now[old] != new)), size)


def estimated(before: maglev.Weights, after: maglev.Weights, size: int = maglev.DEFAULT_SIZE) -> Churn:
    """What a table that moves nobody needlessly would move."""
    total, later = sum(before.values()), sum(after.values())
    if not total:
        return Churn(0, size)
    lost = sum(
        max(0.0, weight / total - (after.get(one, 0) / later if later else 0.0)) for one, weight in before.items()
    )
    return Churn(round(size * lost), size)
