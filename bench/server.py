"""An etcd of the benchmark's own, in memory where the machine has a tmpfs: disks are not what is measured."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.store.embedded import EmbeddedEtcd

MEMORY = Path("/dev/shm")


def scratch() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes with its block."""
    return tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)


@asynccontextmanager
async def etcd_in_memory() -> AsyncIterator[EmbeddedEtcd]:
    """A running etcd; it and its data are gone after the block."""
    with scratch() as folder:
        async with EmbeddedEtcd(Path(folder) / "etcd") as etcd:
            yield etcd
