"""What the parts of a store benchmark are told, and what they report."""

from __future__ import annotations

import msgspec


class Work(msgspec.Struct, frozen=True):
    """What a part is told: where, and which endpoints of which generation."""

    endpoint: str
    keys: int
    generation: int = 0


class Cost(msgspec.Struct, frozen=True):
    """What a piece of work took. A writer reports one of nothing when it is about to begin."""

    items: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def per_s(self) -> float:
        return self.items / self.wall_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.items * 1e6
