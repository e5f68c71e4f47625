"""The lab that commands use: the one in the working folder, or the one that `holdfast --lab PATH` names.

A lab is used only if the caller owns it and its files, which is checked without following links: another user's lab
could answer anything, and take whatever it is sent (C59).
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

LAB_FOLDER = Path(".holdfast")
NAMED = "lab"
"""Parameter of the root command that names a lab."""

F = TypeVar("F", bound=Callable[..., Any])


def own_lab() -> Path | None:
    """Return the folder of the lab; None if there is none here that the caller owns. A lab that was named must be."""
    named = named_lab()
    folder = named or LAB_FOLDER
    if is_own(folder) and is_own(folder / "run"):
        return folder
    if named is not None:
        raise click.ClickException(
            f"{folder} is no lab of this user: name a folder with a lab that you own, and no link to one"
        )
    return None


def owner_of_another(folder: Path = LAB_FOLDER) -> str | None:
    """Return the name of the user who owns the lab in a folder, if that is not the caller; None without such a lab."""
    try:
        found = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid == os.getuid():
        return None
    try:
        return pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        return f"user {found.st_uid}"


def is_lab_named() -> bool:
    return named_lab() is not None


def folder_flag(command: F) -> F:
    """Add `--dir`; it arrives as `folder`, the folder of a lab that need not exist."""

    def chosen(_context: click.Context, _parameter: click.Parameter, given: str | None) -> Path:
        return Path(given) if given else named_lab() or LAB_FOLDER

    text = "Folder of the lab's files. Default: the one that holdfast --lab names, else .holdfast here."
    return click.option("--dir", "folder", metavar="DIR", callback=chosen, help=text)(command)


def named_lab() -> Path | None:
    """Return the folder that `holdfast --lab PATH` names."""
    context = click.get_current_context(silent=True)
    given = context.find_root().params.get(NAMED) if context is not None else None
    return Path(given) if given else None


def is_own(path: Path, is_kind: int = stat.S_IFDIR) -> bool:
    """Return True for a real folder, or file of that kind, of the caller; a link may lead to another user's."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_IFMT(found.st_mode) == is_kind and found.st_uid == os.getuid()
