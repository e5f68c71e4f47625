"""The worker that neutron-periodic-workers starts: it becomes `holdfast server`, with Neutron as its inventory.

The process that Neutron forks for the worker executes the command in its place. So it has the pid that Neutron watches:
when the server ends, for whatever reason, Neutron starts it again, and a SIGTERM for the worker stops the server.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from neutron_lib import worker

from holdfast.openstack.server_command import CalicoOptions, calico_options, server_command

_PR_SET_PDEATHSIG = 1


def calico_conf(conf: Any) -> CalicoOptions:
    """Section `[calico]`, as Neutron has read it."""
    return calico_options(partial(getattr, conf.calico))


def config_files(conf: Any) -> list[str]:
    """The files that Neutron has read."""
    return [str(Path(file).resolve()) for file in conf.config_file]


def holdfast_arguments(conf: Any) -> list[str]:
    """The command line, from the options of neutron.conf."""
    return server_command(sys.executable, calico_conf(conf), config_files(conf), conf.config_dirs)


class HoldfastServer(worker.BaseWorker):  # type: ignore[misc]
    """Becomes the server in `start`, so that `wait` is reached only if that failed."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(worker_process_count=1, desc="holdfast server")
        self._command = command

    def start(self, **_kwargs: Any) -> None:
        super().start(desc="holdfast server")
        _die_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execv(self._command[0], self._command)  # noqa: S606 -- our own interpreter

    def wait(self) -> NoReturn:
        raise RuntimeError(f"holdfast server was not started: {' '.join(self._command)}")

    def stop(self) -> None:
        return

    def reset(self) -> None:
        return


def _die_with_parent() -> None:
    """Stop the server when neutron-periodic-workers is killed: the next one starts another."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
