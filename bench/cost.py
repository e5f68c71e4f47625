"""Jobs and reports of the parts of a store benchmark."""

from __future__ import annotations

import msgspec


class Work(msgspec.Struct, frozen=True):
    """Job of a part: the etcd to use, and which endpoints of which generation."""

    endpoint: str
    keys: int
    generation: int = 0


class Cost(msgspec.Struct, frozen=True):
    """Time and CPU of a piece of work. A writer reports an empty one just before it begins."""

    items: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def per_s(self) -> float:
        return self.items / self.wall_s

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.items * 1e6
