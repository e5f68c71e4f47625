"""Live migrations in the inventory: where one starts, and what ends it.

Somebody says where an endpoint is to go; where it starts is where the endpoint is, and the inventory knows that. A
migration ends in the transaction in which its endpoint is put anywhere else, or goes: it has arrived, or it was
overtaken. None comes back by itself: an endpoint that is put back where it was is not on its way again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row

from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, WantedObject
from holdfast.inventory.kinds import host_of
from holdfast.inventory.sql.objects import called
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION, Migration


def begun(connection: Connection, wishes: Sequence[WantedObject], region: Region) -> Sequence[WantedObject]:
    """The wishes, each migration from where its endpoint will be once all of them are granted. Raises `EditRefused`."""
    names = [wish.name for wish in wishes if isinstance(wish.thing, Migration)]
    if not names:
        return wishes
    homes: dict[str, str] = {row.name: row.host for row in called(connection, ENDPOINT, names)}
    homes |= {wish.name: host_of(wish.thing) if wish.thing else "" for wish in wishes if wish.kind is ENDPOINT}
    return [_begun(wish, homes.get(wish.name, ""), region) for wish in wishes]


def _begun(wish: WantedObject, home: str, region: Region) -> WantedObject:
    if not isinstance(wish.thing, Migration):
        return wish
    target = wish.thing.target
    if not home:
        raise EditRefused(
            f"endpoint {wish.name} is not in the inventory, so it cannot migrate to {target.node}: apply it as well, "
            "on the host that it is on now"
        )
    if home == target.node:
        raise EditRefused(
            f"endpoint {wish.name} is on {home}, so it cannot migrate there: name another host, if it is to go anywhere"
        )
    return replace(wish, thing=Migration.of(region, target._replace(node=home), target.node))


def ended(connection: Connection, edits: Sequence[Edit]) -> Sequence[Edit]:
    """The migrations that end by these edits; what becomes of one that was asked for by name is decided already."""
    endpoints = {edit.name: edit for edit in edits if edit.kind is ENDPOINT}
    asked = {edit.name for edit in edits if edit.kind is MIGRATION}
    rows = called(connection, MIGRATION, sorted(endpoints.keys() - asked))
    return [_ended(row, endpoints[row.name]) for row in rows if _has_ended(row, endpoints[row.name])]


def _has_ended(row: Row[Any], endpoint: Edit) -> bool:
    """Also where the endpoint stays as it is: an older version that put it there left its migration behind."""
    if endpoint.did in (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED):
        return True
    migration = MIGRATION.decode(row.key, row.doc)
    return not isinstance(migration, Bad) and migration.source.node != _home(endpoint)


def _ended(row: Row[Any], endpoint: Edit) -> Edit:
    because = _why(_home(endpoint), row.host)
    return Edit(ChangeKind.DELETED, MIGRATION, row.name, row.key, row.doc, row.key, None, None, because=because)


def _home(endpoint: Edit) -> str:
    return host_of(endpoint.thing) if endpoint.thing else ""


def _why(home: str, to: str) -> str:
    if not home:
        return "the endpoint is gone"
    return f"the endpoint is on {home} now" + ("" if home == to else f", and not on its way to {to} any more")
