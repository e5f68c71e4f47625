"""The worker that neutron-periodic-workers starts: it becomes `holdfast server`, with Neutron as its inventory.

The process that Neutron forks for the worker executes the command in its place. So it has the pid that Neutron watches:
when the server ends, for whatever reason, Neutron starts it again, and a SIGTERM for the worker stops the server.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

from neutron_lib import worker

from holdfast.openstack.server_command import CalicoOptions, server_command

_PR_SET_PDEATHSIG = 1


def holdfast_arguments(conf: Any) -> list[str]:
    """The command line, from the options of neutron.conf."""
    calico = conf.calico
    endpoints = calico.endpoints or [
        f"{'https' if calico.etcd_ca_cert_file else 'http'}://{calico.etcd_host}:{calico.etcd_port}"
    ]
    options = CalicoOptions(
        endpoints=tuple(endpoints),
        region=calico.openstack_region or "",
        ca_file=calico.etcd_ca_cert_file or "",
        cert_file=calico.etcd_cert_file or "",
        key_file=calico.etcd_key_file or "",
        config=calico.holdfast_config or "",
    )
    files = [str(Path(file).resolve()) for file in conf.config_file]
    return server_command(sys.executable, options, files, conf.config_dirs)


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
