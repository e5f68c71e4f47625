"""Inventory and etcd of a lab, for commands that read them while nothing of a fleet is configured.

They are used only while no setting names a store, a database or a credential: what is configured for a fleet must never
reach the etcd of a lab (C59).
"""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.cli.common.config_flags import effective
from holdfast.cli.common.own_lab import is_lab_named, is_own, own_lab
from holdfast.config import FlagValue, Layer, Loaded
from holdfast.lab.fleet import layout

_INVENTORY = ("inventory.database", "inventory.password_file")


def effective_or_lab(config_file: str | None, settings: Sequence[FlagValue]) -> Loaded:
    """Load the configuration; where it names neither inventory nor store, use those of the caller's own lab."""
    loaded = effective(config_file, settings)
    folder = None if names_a_fleet(loaded) else own_lab()
    if folder is None or not (is_own(folder / "state") and is_own(folder / "state" / "inventory.db", stat.S_IFREG)):
        return loaded
    click.echo(f"no inventory is configured: using the lab in {folder}", err=True)
    flags = [FlagValue("the lab", "inventory.database", layout.database(folder / "state"))]
    return effective(config_file, [*settings, *flags, *_store_of(folder)])


def store_or_lab(config_file: str | None, flags: Sequence[FlagValue]) -> Loaded:
    """Load the configuration; where it names nothing of a store, use the etcd of the caller's own lab."""
    loaded = effective(config_file, flags)
    folder = None if names_a_fleet(loaded) else own_lab()
    found = _store_of(folder) if folder is not None else ()
    if not found:
        return loaded
    click.echo(f"no store is configured: using the lab in {folder}", err=True)
    return effective(config_file, [*flags, *found])


def _store_of(folder: Path) -> tuple[FlagValue, ...]:
    """Return the setting for the lab's etcd, if the file with its port belongs to the caller."""
    etcd = layout.etcd_folder(folder / "state")
    if not (is_own(folder / "state") and is_own(etcd) and is_own(etcd / "port", stat.S_IFREG)):
        return ()
    url = layout.endpoint(folder / "state")
    return (FlagValue("the lab", "store.endpoints", url),) if url is not None else ()


def names_a_fleet(loaded: Loaded) -> bool:
    """Return True if a file, the environment or a flag sets the database, its password, or anything of the store."""
    named = [
        path
        for path, origin in loaded.origins.items()
        if (path in _INVENTORY or path.startswith("store.")) and origin.layer is not Layer.DEFAULT
    ]
    if named and is_lab_named():
        raise click.ClickException(f"--lab is for a lab, and {named[0]} is set for a fleet: leave one of them out")
    return bool(named)
