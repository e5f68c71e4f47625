"""An etcd for a benchmark, in memory if the machine has a tmpfs: disks are not measured."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.store.embedded.server import EmbeddedEtcd

MEMORY = Path("/dev/shm")


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder, in memory where possible."""
    return tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)


@asynccontextmanager
async def etcd_in_memory() -> AsyncIterator[EmbeddedEtcd]:
    """Run an etcd, which keeps its port when it is restarted; it and its data are removed after the block."""
    with scratch() as folder:
        async with EmbeddedEtcd(Path(folder) / "etcd", port=_free_port()) as etcd:
            yield etcd


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
