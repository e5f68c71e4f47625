"""Writers of the guard's objects: its table, and the elements of its sets."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agent.claims import GUARD_KINDS, ClaimKey, Shape
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused


class GuardTableWriter:
    def make(self, context: LinuxContext, family: int, wanted: Sequence[tuple[ClaimKey, Shape]]) -> Refused:
        refusal = context.guard.make_table()
        return {} if refusal is None else {key: refusal for key, _ in wanted}

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        refusal = context.guard.remove_table()
        if refusal is not None:
            return dict.fromkeys(keys, refusal)
        for key in [key for key in context.snapshot.shapes if key.kind in GUARD_KINDS]:
            context.snapshot.pop(key)
        return {}


class GuardElementWriter:
    def make(self, context: LinuxContext, family: int, wanted: Sequence[tuple[ClaimKey, Shape]]) -> Refused:
        return context.guard.add([key for key, _ in wanted])

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        return context.guard.delete([key for key in keys if key in context.snapshot.shapes])
