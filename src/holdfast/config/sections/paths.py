"""Folders of Holdfast. Both can be anywhere, so that a test can run a fleet below one folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, Folder, Section


class PathSettings(Section, frozen=True, kw_only=True):
    """Folders."""

    state: Annotated[
        Folder,
        FieldDoc(
            "Folder for files that must survive a reboot: journal, decision log, store identity. On a disk. After its "
            "loss the next start deletes nothing until it has received complete lists."
        ),
    ] = "/var/lib/holdfast"
    runtime: Annotated[
        Folder,
        FieldDoc(
            "Folder for files that must not survive a reboot: control sockets, the board, the effective configuration. "
            "In memory (tmpfs)."
        ),
    ] = "/run/holdfast"

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.state.rstrip("/") == self.runtime.rstrip("/"):
            yield FieldConflict(
                ("runtime", "state"),
                "is the same folder as paths.state: files that must not survive a reboot need a folder of their own",
            )
