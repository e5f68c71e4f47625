"""A real VPP with its lb plugin, without DPDK and hugepages, for tests. Where `vpp` is not installed, they skip.

In a namespace it takes over the veth pairs that it is given (`host-interface`), so that packets pass through it.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from holdfast.testing.real.netns import Namespace
from holdfast.testing.real.processes import Process, folder, run, tool, wait_until

_PLUGINS = ("lb_plugin.so", "af_packet_plugin.so", "ping_plugin.so")


class Vpp:
    """VPP in a folder of its own, in the network namespace of this process or in another one."""

    def __init__(self, home: Path, namespace: Namespace | None = None) -> None:
        self.api_socket = home / "api.sock"
        self.stats_socket = home / "stats.sock"
        self._cli = home / "cli.sock"
        enabled = " ".join(f"plugin {name} {{ enable }}" for name in _PLUGINS)
        words = (
            tool("vpp"),
            f"unix {{ nodaemon nobanner runtime-dir {home} cli-listen {self._cli} log {home}/vpp.log }}",
            f"api-segment {{ prefix {home.name} }}",
            f"socksvr {{ socket-name {self.api_socket} }}",
            f"statseg {{ socket-name {self.stats_socket} size 32M }}",
            "memory { main-heap-size 256M main-heap-page-size 4k }",
            "buffers { page-size 4k buffers-per-numa 16384 }",
            f"plugins {{ plugin default {{ disable }} {enabled} }}",
        )
        command = words if namespace is None else namespace.command(*words)
        self.process = Process(list(command), log=home / "log")

    def start(self) -> None:
        """Start it and wait until its API answers."""
        self.process.start()
        wait_until(self._accepts, f"VPP accepts connections: {self.process.output}")

    def restart(self) -> None:
        """Kill it and start it again, empty."""
        self.process.kill()
        self.api_socket.unlink(missing_ok=True)
        self.start()

    def cli(self, *words: str) -> str:
        """Run a command of its own command line, and return what it prints."""
        return run([tool("vppctl"), "-s", str(self._cli), *words])

    def _accepts(self) -> bool:
        if not self.process.alive:
            raise AssertionError(f"VPP ended: {self.process.output}")
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self.api_socket))
            except OSError:
                return False
            return True


@contextlib.contextmanager
def running_vpp(namespace: Namespace | None = None) -> Iterator[Vpp]:
    with folder() as home:
        vpp = Vpp(home, namespace)
        vpp.start()
        try:
            yield vpp
        finally:
            vpp.process.kill()
