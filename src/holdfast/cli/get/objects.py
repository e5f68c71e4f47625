"""Objects of the inventory, as `holdfast get` shows them: desired state, and what is observed of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import click

from holdfast.cli.change.inventory import document, kind_named, session
from holdfast.cli.common.table import table
from holdfast.cli.get.observed import ObservedColumn
from holdfast.config import FlagValue
from holdfast.inventory.changes import EditRefused, StoredObject
from holdfast.inventory.kinds import belongs
from holdfast.inventory.manifest import write
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region


def show_objects(
    kind: str,
    name: str | None,
    network: str | None,
    output: str,
    config_file: str | None,
    settings: Sequence[FlagValue],
) -> None:
    """Print the objects of a kind in the inventory, or one by name."""
    chosen = kind_named(kind, others=("servers", "workers", "gates", "intents", "peers", "routes"))
    with session(config_file, settings) as opened:
        found = opened.editor.objects(chosen, name, network)
        if name is not None and not found:
            raise EditRefused(f"no {chosen.name} {name} in the inventory")
        seen = ObservedColumn(chosen.name, opened.region, SqlObserved(opened.engine))
        _show(chosen, found, opened.region, output, seen)
    if not found:
        on_network = f" on network {network}" if network is not None else ""
        click.echo(f"no {chosen.plural}{on_network} in the inventory", err=True)


def _show(
    kind: Kind[Any, Any], found: Sequence[StoredObject], region: Region, output: str, seen: ObservedColumn
) -> None:
    if output == "json":
        click.echo(json.dumps(list(_documents(kind, found, region, seen)), indent=2))
    elif output == "name":
        for one in found:
            click.echo(one.name)
    elif output == "yaml":
        click.echo(_file(kind, found, region), nl=False)
    else:
        _table(kind, found, region, seen, wide=output == "wide")


def _table(
    kind: Kind[Any, Any], found: Sequence[StoredObject], region: Region, seen: ObservedColumn, *, wide: bool
) -> None:
    columns = [*(column for column in kind.columns if wide or not column.wide), *seen.columns()]
    rows = [[column.header for column in columns]]
    for one in found:
        read_back = _read_back(kind, one, region)
        if isinstance(read_back, str):
            rows.append([one.name, read_back])
        else:
            rows.append([column.cell(*read_back) for column in columns])
    for line in table(rows):
        click.echo(line)


def _file(kind: Kind[Any, Any], found: Sequence[StoredObject], region: Region) -> str:
    described: list[dict[str, Any]] = []
    for one in found:
        read_back = _read_back(kind, one, region)
        if isinstance(read_back, str):
            click.echo(f"{kind.name} {one.name} {read_back}: skipped", err=True)
        else:
            described.append(write.described(kind, one.name, read_back[1]))
    return write.text(described)


def _read_back(kind: Kind[Any, Any], one: StoredObject, region: Region) -> tuple[Any, Any] | str:
    """Decode the name in its key and the object, or return why they cannot be shown."""
    name, thing = kind.parse(one.key, region), kind.decode(one.key, one.doc)
    if not belongs(kind, one.key, thing, region):
        return "belongs to another region"
    if isinstance(name, Bad) or isinstance(thing, Bad):
        return "is unreadable for this version"
    return name, thing


def _documents(
    kind: Kind[Any, Any], found: Sequence[StoredObject], region: Region, seen: ObservedColumn
) -> Iterator[dict[str, Any]]:
    for one in found:
        shown, name = document(one.doc), kind.parse(one.key, region)
        if shown is None or isinstance(name, Bad):
            click.echo(f"{kind.name} {one.name} is unreadable: skipped", err=True)
        else:
            yield {"name": one.name, **shown, **seen.document(name)}
