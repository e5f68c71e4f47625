"""Checks of the inventory: that it answers and takes writes, and that its changes reach the store.

Imported only if an inventory is configured: the base install has no SQL.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from holdfast.cli.common.format import short
from holdfast.cli.doctor import Finding, Severity
from holdfast.config.schema.scalars import printable
from holdfast.config.sections.inventory import InventorySettings
from holdfast.inventory.api import DatabaseAway, Inventory, OutboxRow
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.open import NoInventory, configured_engine, open_backend
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.trial import try_database
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER
from holdfast.runtime.config_file import SecretRefused
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Store

_PAGE = 5_000
_USUAL = timedelta(seconds=30)
"""A change older than this is not being synced."""


def examine(config: InventorySettings, region: Region) -> Iterator[Finding]:
    if config.is_neutron:
        yield from _neutron(config, region)
        return
    try:
        engine = configured_engine(config)
        inventory = SqlInventory(engine)
    except (SecretRefused, ValueError) as error:
        yield Finding(Severity.WRONG, "inventory", str(error))
        return
    try:
        try_database(engine, "doctor")  # a database that only answers would hold every change
        yield from _outbox(inventory, region)
    except DatabaseAway as away:
        yield Finding(Severity.WRONG, "inventory", str(away))
    finally:
        inventory.close()


def _neutron(config: InventorySettings, region: Region) -> Iterator[Finding]:
    try:
        backend = open_backend(config, region)
    except (NoInventory, ValueError) as error:
        yield Finding(Severity.WRONG, "inventory", str(error))
        return
    try:
        inventory = backend.inventory()
        rows = len(inventory.outbox(_PAGE))
        more = "or more" if rows == _PAGE else "changes"
        yield Finding(
            Severity.GOOD, "inventory", f"Neutron's database is reachable; {rows:,} {more} wait for the leader"
        )
        yield from _refused(inventory, region)
    except DatabaseAway as away:
        yield Finding(Severity.WRONG, "inventory", str(away))
    finally:
        backend.close()


def _refused(inventory: Inventory, region: Region) -> Iterator[Finding]:
    """Name the objects that have no form in the store."""
    refused: list[bytes] = []
    after: bytes | None = None
    snapshot = inventory.snapshot()
    try:
        while page := snapshot.read(after, _PAGE):
            refused += [row.key for row in page if row.is_refused]
            after = page[-1].key
    finally:
        snapshot.close()
    if refused:
        first = RegionKeys(region, inventory.kinds).show(refused[0])
        sentence = (
            f"{len(refused):,} objects of Neutron cannot be expressed, the first is {first}; what etcd has of them"
            " stays. holdfast openstack check names the causes"
        )
        yield Finding(Severity.WRONG, "inventory", sentence)


async def examine_leader(store: Store, region: Region) -> Finding:
    """Check that a server leads; nobody else writes Neutron's changes to the store."""
    leader = await store.get(LEADER.key(region, "leader"))
    if leader is None:
        sentence = "no server leads, so no change of Neutron reaches etcd: start neutron-periodic-workers"
        return Finding(Severity.WRONG, "leader", sentence)
    found = LEADER.decode(leader.key, leader.value)
    if isinstance(found, Bad):
        return Finding(Severity.WRONG, "leader", f"the leader key cannot be read: {printable(str(found))}")
    if not found.boot_id:
        sentence = f"networking-calico leads from {printable(found.host)}: stop its server, so that ours can lead"
        return Finding(Severity.WRONG, "leader", sentence)
    return Finding(Severity.GOOD, "leader", f"{printable(found.name)} leads")


def _outbox(inventory: SqlInventory, region: Region) -> Iterator[Finding]:
    keys = RegionKeys(region, KINDS)
    ours, others, foreign = 0, 0, b""
    since = datetime.now(UTC)
    for row in _rows(inventory):
        if keys.has(row.key) or (row.before is not None and keys.has(row.before)):
            since = since if ours else inventory.changed_at(row.id) or since
            ours += 1
        else:
            others, foreign = others + 1, row.key
    age = datetime.now(UTC) - since
    if age > _USUAL:
        backlog = f"changes that have not reached the store: {ours:,}, the oldest for {short(age.total_seconds())}"
        yield Finding(Severity.WRONG, "inventory", f"{backlog}: check leader and gates with holdfast status")
    else:
        yield Finding(Severity.GOOD, "inventory", f"reachable; changes on their way to the store: {ours:,}")
    if others:
        where = printable(foreign.decode(errors="replace"))
        sentence = f"changes of another region, which no server here syncs: {others:,}, the last at {where}"
        yield Finding(Severity.WRONG, "inventory", f"{sentence}: use one database per region")


def _rows(inventory: SqlInventory) -> Iterator[OutboxRow]:
    after = 0
    while rows := inventory.outbox(_PAGE, after):
        yield from rows
        after = rows[-1].id
