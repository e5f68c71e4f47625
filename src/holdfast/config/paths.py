"""Where Holdfast keeps its files. Both folders can be anywhere, so that a test runs a fleet below one folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from holdfast.config.field import About, Conflict, Folder, Section

# The kernel takes 107 bytes for the name of a Unix socket, and ours are called `/balancer.sock` and the like.
_LONGEST_RUNTIME = 80


class Paths(Section, frozen=True, kw_only=True):
    """Folders."""

    state: Annotated[
        Folder,
        About(
            "Folder for what must survive a reboot: journal, decision log, remembered store identity. On a disk; when "
            "it is lost, the next start adds and keeps only, until it has seen complete lists."
        ),
    ] = "/var/lib/holdfast"
    runtime: Annotated[
        Folder,
        About(
            "Folder for what must not survive a reboot: control sockets, the board, the effective configuration. In "
            f"memory (tmpfs); at most {_LONGEST_RUNTIME} bytes long, because the kernel limits the names of sockets."
        ),
    ] = "/run/holdfast"

    def conflicts(self) -> Iterator[Conflict]:
        if len(self.runtime.encode()) > _LONGEST_RUNTIME:
            yield Conflict(
                ("runtime",),
                f"is longer than {_LONGEST_RUNTIME} bytes, and the sockets in it would have longer names than the "
                "kernel allows: choose a shorter path",
            )
        if self.state.rstrip("/") == self.runtime.rstrip("/"):
            yield Conflict(
                ("runtime", "state"),
                "is the same folder as paths.state: what must not survive a reboot needs a folder of its own",
            )
