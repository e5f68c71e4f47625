"""The processes of `holdfast server` that neutron-periodic-workers has started."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from holdfast.testing.real.neutron import NeutronFleet
from holdfast.testing.real.processes import wait_until


def server_pid(fleet: NeutronFleet) -> int:
    """The pid of `holdfast server`, which neutron-periodic-workers started."""
    config = str(fleet.home / "holdfast.yaml").encode()

    def find() -> list[int]:
        return [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_server(path, config)]

    wait_until(lambda: bool(find()), "holdfast server runs", within=120)
    return find()[0]


def _is_server(process: Path, config: bytes) -> bool:
    try:
        words = process.joinpath("cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return config in words and b"holdfast.cli" in words


@contextlib.contextmanager
def frozen(fleet: NeutronFleet, worker: str) -> Iterator[None]:
    """A worker that stands still; so does the supervisor, which would replace it."""
    pids = [server_pid(fleet), fleet.worker_pid(worker)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)
