"""What `holdfast doctor` says of the inventory: whether it answers, and which changes nobody brings to the store.

Imported where an inventory is configured: the base install has no SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from holdfast.cli.common.format import short
from holdfast.cli.doctor.finding import Finding, Severity
from holdfast.config.schema.scalars import printable
from holdfast.config.sections.inventory import InventorySettings as InventoryConfig
from holdfast.inventory.api import DatabaseAway, OutboxRow
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.open import configured_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.region import Region
from holdfast.runtime.config_file import SecretRefused
from holdfast.server.syncer.keys import RegionKeys

_PORTION = 5_000
_USUAL = timedelta(seconds=30)
"""A change that is younger is on its way."""


def examine(config: InventoryConfig, region: Region) -> Iterator[Finding]:
    try:
        inventory = SqlInventory(configured_engine(config))
    except (SecretRefused, ValueError) as error:
        yield Finding(Severity.WRONG, "inventory", str(error))
        return
    try:
        yield from _waiting(inventory, region)
    except DatabaseAway as away:
        yield Finding(Severity.WRONG, "inventory", str(away))
    finally:
        inventory.close()


def _waiting(inventory: SqlInventory, region: Region) -> Iterator[Finding]:
    layout = RegionKeys(region, KINDS)
    ours, others, foreign = 0, 0, b""
    since = datetime.now(UTC)
    for row in _outbox(inventory):
        if layout.has(row.key) or (row.before is not None and layout.has(row.before)):
            since = since if ours else inventory.changed_at(row.id) or since
            ours += 1
        else:
            others, foreign = others + 1, row.key
    age = datetime.now(UTC) - since
    if age > _USUAL:
        waits = f"changes that wait for the store: {ours:,}, the first for {short(age.total_seconds())}"
        yield Finding(
            Severity.WRONG, "inventory", f"{waits}; holdfast status says whether somebody leads, and what holds"
        )
    else:
        yield Finding(Severity.GOOD, "inventory", f"it answers; changes on their way to the store: {ours:,}")
    if others:
        where = printable(foreign.decode(errors="replace"))
        said = f"changes of another region, which no server of this one settles: {others:,}, the last at {where}"
        yield Finding(Severity.WRONG, "inventory", f"{said}; each region has a database of its own")


def _outbox(inventory: SqlInventory) -> Iterator[OutboxRow]:
    after = 0
    while rows := inventory.outbox(_PORTION, after):
        yield from rows
        after = rows[-1].id
