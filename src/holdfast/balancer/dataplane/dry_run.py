"""dry-run: a dataplane that carries no traffic. It logs each change and keeps the result in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

import structlog

from holdfast.balancer.dataplane.api import Counters, VipDataplaneInfo
from holdfast.balancer.vip import BackendEntry, Objects, Value, Vip, VipKey, as_wanted
from holdfast.reconcile import Change

log = structlog.get_logger(__name__)


class DryRunDataplane:
    """Contents in memory, lost with the process."""

    def __init__(self) -> None:
        self._objects: dict[VipKey, Value] = {}

    def canonical(self, vip: Vip, objects: Objects) -> Objects:
        return as_wanted(vip, objects)

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        return {key: value for key, value in self._objects.items() if vips is None or key.vip in vips}

    async def apply(self, changes: Sequence[Change[VipKey, Value]]) -> Sequence[str | None]:
        for change in changes:
            log.info("dry run, change not made", op=change.op.name.lower(), key=str(change.key), value=_shown(change))
            if change.new is None:
                for key in [key for key in self._objects if _deleted_with(key, change.key)]:
                    del self._objects[key]
            else:
                self._objects[change.key] = change.new.value
        return [None] * len(changes)

    async def counters(self) -> Mapping[VipKey, Counters]:
        return {}

    async def lost(self) -> str:
        await asyncio.Event().wait()  # memory is not lost while the process runs
        return ""

    def describe(self) -> VipDataplaneInfo:
        return VipDataplaneInfo("dry-run", frozenset({"sticky", "table_size", "algorithm"}))


def _deleted_with(key: VipKey, gone: VipKey) -> bool:
    return key == gone or gone == VipKey(key.vip)


def _shown(change: Change[VipKey, Value]) -> str:
    if change.new is None:
        return ""
    value = change.new.value
    if isinstance(value, BackendEntry):
        return f"weight {value.weight}" + (", killing its flows" if value.kill else "")
    return f"{value.table_size} buckets" + (", sticky" if value.sticky else "")
