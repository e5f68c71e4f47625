"""Live migrations in the inventory: the source of a new one, and the end of a running one.

A request names the target host; the source is the host that the endpoint is on. A migration ends in the transaction
that moves its endpoint to any host or deletes it: it has arrived, or it is obsolete. It does not start again by itself
when the endpoint moves back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, WantedObject
from holdfast.inventory.kinds import host_of
from holdfast.inventory.sql.objects import rows_named
from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION, Migration


def with_sources(connection: Connection, requests: Sequence[WantedObject], region: Region) -> Sequence[WantedObject]:
    """The requests, with the source of each migration: the host of its endpoint once all requests are applied.
    Raises `EditRefused`."""
    names = [request.name for request in requests if isinstance(request.thing, Migration)]
    if not names:
        return requests
    hosts: dict[str, str] = {row.name: row.host for row in rows_named(connection, ENDPOINT, names)}
    hosts |= {
        request.name: host_of(request.thing) if request.thing else ""
        for request in requests
        if request.kind is ENDPOINT
    }
    return [_with_source(request, hosts.get(request.name, ""), region) for request in requests]


def _with_source(request: WantedObject, host: str, region: Region) -> WantedObject:
    if not isinstance(request.thing, Migration):
        return request
    target = request.thing.target
    if not host:
        raise EditRefused(
            f"endpoint {request.name} is not in the inventory, so it cannot migrate to {target.node}: apply it "
            "as well, on the host that it is on now"
        )
    if host == target.node:
        raise EditRefused(f"endpoint {request.name} is on {host}, so it cannot migrate there: name another host")
    if request.imported is not None:
        return _from_there(request, request.thing.source.node, host)
    return msgspec.structs.replace(request, thing=Migration.of(region, target._replace(node=host), target.node))


def _from_there(request: WantedObject, source: str, host: str) -> WantedObject:
    """An imported migration keeps its own source, which must be the host of its endpoint."""
    if source != host:
        raise EditRefused(
            f"migration {request.name} comes from host {source}, but its endpoint is on {host}: end that migration"
        )
    return request


def ended(connection: Connection, edits: Sequence[Edit]) -> Sequence[Edit]:
    """Deletes of the migrations that end with these edits. Migrations that a request names are decided already."""
    endpoints = {edit.name: edit for edit in edits if edit.kind is ENDPOINT}
    requested = {edit.name for edit in edits if edit.kind is MIGRATION}
    rows = rows_named(connection, MIGRATION, sorted(endpoints.keys() - requested))
    return [_ended(row, endpoints[row.name]) for row in rows if _has_ended(row, endpoints[row.name])]


def _has_ended(row: Row[Any], endpoint: Edit) -> bool:
    """True also for an unchanged endpoint on another host than the source: an older version did not end migrations."""
    if endpoint.did in (ChangeKind.CREATED, ChangeKind.MOVED, ChangeKind.DELETED):
        return True
    migration = MIGRATION.decode(row.key, row.doc)
    return not isinstance(migration, Bad) and migration.source.node != _host(endpoint)


def _ended(row: Row[Any], endpoint: Edit) -> Edit:
    because = _why(_host(endpoint), row.host)
    return Edit(ChangeKind.DELETED, MIGRATION, row.name, row.key, row.doc, row.key, None, None, because=because)


def _host(endpoint: Edit) -> str:
    return host_of(endpoint.thing) if endpoint.thing else ""


def _why(host: str, to: str) -> str:
    if not host:
        return "the endpoint is gone"
    return f"the endpoint is on {host} now" + ("" if host == to else f", so it no longer migrates to {to}")
