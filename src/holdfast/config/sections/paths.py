"""Where Holdfast keeps its files. Both folders can be anywhere, so that a test runs a fleet below one folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, Folder, Section


class PathSettings(Section, frozen=True, kw_only=True):
    """Folders."""

    state: Annotated[
        Folder,
        FieldDoc(
            "Folder for what must survive a reboot: journal, decision log, remembered store identity. On a disk; when "
            "it is lost, the next start adds and keeps only, until it has seen complete lists."
        ),
    ] = "/var/lib/holdfast"
    runtime: Annotated[
        Folder,
        FieldDoc(
            "Folder for what must not survive a reboot: control sockets, the board, the effective configuration. In "
            "memory (tmpfs)."
        ),
    ] = "/run/holdfast"

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.state.rstrip("/") == self.runtime.rstrip("/"):
            yield FieldConflict(
                ("runtime", "state"),
                "is the same folder as paths.state: what must not survive a reboot needs a folder of its own",
            )
