"""Replacements for protections that `@fault` tests remove."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.config.sections.pulse import PulseSettings
from holdfast.model.base.time import Instant
from holdfast.runtime.daemon.pulse import PulseVerdict, WorkerSigns
from holdfast.server.syncer.outbox import Outbox


def only_exits_count(signs: WorkerSigns, bounds: PulseSettings, now: Instant) -> PulseVerdict:
    """A supervisor that notices only exits."""
    return PulseVerdict.HEALTHY if signs.exit is None else PulseVerdict.DEAD


async def forgotten_when_read(self: Outbox) -> Collection[bytes]:
    """Remove changes from the outbox when they are read, not when the store has them."""
    rows = await self._run_in_thread(lambda: self._inventory.outbox(1_000))
    await self._run_in_thread(lambda: self._inventory.settle(self._fence, [row.id for row in rows]))
    return {key for row in rows for key in (row.key, row.before) if key is not None}
