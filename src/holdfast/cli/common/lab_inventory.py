"""Inventory of the lab in the working folder, for commands on objects while no inventory is configured.

A lab is used only if the caller owns it and its files, which is checked without following links, and only while nothing
of a store is configured: a configured password must never reach a lab's etcd (C59).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import click

from holdfast.cli.common.config_flags import effective
from holdfast.cli.common.control_socket import LAB_FOLDER
from holdfast.config import FlagValue, Layer, Loaded
from holdfast.lab.fleet import layout

_STATE = LAB_FOLDER / "state"


def effective_or_lab(config_file: str | None, settings: Sequence[FlagValue]) -> Loaded:
    """Load the configuration; where it names neither inventory nor store, use those of the caller's own lab."""
    loaded = effective(config_file, settings)
    if _names_a_fleet(loaded) or not _is_own_lab():
        return loaded
    click.echo(f"no inventory is configured: using the lab in {LAB_FOLDER}", err=True)
    flags = [FlagValue("the lab", "inventory.database", layout.database(_STATE))]
    if (endpoint := layout.endpoint(_STATE)) is not None:
        flags.append(FlagValue("the lab", "store.endpoints", endpoint))
    return effective(config_file, [*settings, *flags])


def _names_a_fleet(loaded: Loaded) -> bool:
    """True if a file, the environment or a flag sets the database or anything of the store."""
    return any(
        origin.layer is not Layer.DEFAULT
        for path, origin in loaded.origins.items()
        if path == "inventory.database" or path.startswith("store.")
    )


def _is_own_lab() -> bool:
    return all(map(_is_own, (LAB_FOLDER, _STATE))) and _is_own(_STATE / "inventory.db", folder=False)


def _is_own(path: Path, *, folder: bool = True) -> bool:
    """True for a real folder or file of the caller; a link may lead to another user's."""
    try:
        found = path.lstat()
    except OSError:
        return False
    is_kind = stat.S_ISDIR if folder else stat.S_ISREG
    return is_kind(found.st_mode) and found.st_uid == os.getuid()
