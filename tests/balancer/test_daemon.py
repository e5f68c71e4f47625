"""`holdfast balancer` as real processes: prober and keeper, with servers of the test's own, on dry-run."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runtime.control import Request, ask
from holdfast.testing.processes import Process, folder, free_ports, wait_until

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


class Daemon:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.ports = free_ports(2)
        self.servers = {port: Server(port) for port in self.ports}
        self.config = base / "holdfast.yaml"
        self.write()
        self.process = Process([HOLDFAST, "balancer", "--config", str(self.config)], log=base / "log")
        self.process.start()

    def write(self, extra: str = "") -> None:
        one, two = self.ports
        self.config.write_text(f"""\
paths: {{state: {self.base}/state, runtime: {self.base}/run}}
balancer:
  startup-min-delay: 500ms
  startup-max-delay: 20s
  healthchecks: {{web: {{type: tcp, interval: 100ms, timeout: 5s}}}}
  backends:
    one: {{address: 127.0.0.1, port: {one}, healthcheck: web}}
    two: {{address: 127.0.0.1, port: {two}, healthcheck: web{extra}}}
  frontends:
    www: {{address: 192.0.2.1, port: 80, pools: [{{backends: {{one: , two: }}}}]}}
""")

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [HOLDFAST, *words, "--runtime", str(self.base / "run")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def weights(self) -> dict[str, int | None]:
        request = Request("tell", {"do": "balancer"}, "vips")
        said = asyncio.run(ask(self.base / "run" / "balancer.sock", request))
        if said.error:
            return {}
        return {member["backend"]: member["programmed"] for member in said.result["frontends"][0]["pools"][0]}

    def comes_to(self, **weights: int) -> None:
        wait_until(lambda: self.weights() == weights, f"weights are {weights}:\n{self.process.output}", within=60)


class Server:
    """Takes every connection and ends it: a backlog that fills up would look like a dead backend."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port), backlog=64)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the socket was shut down
            while True:
                self._socket.accept()[0].close()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    with folder() as base:
        running = Daemon(base)
        try:
            yield running
        finally:
            running.process.stop()
            for server in running.servers.values():
                server.close()


def test_a_backend_that_dies_loses_its_weight_and_a_wish_survives_a_kill(daemon: Daemon) -> None:
    daemon.comes_to(one=100, two=100)
    daemon.servers.pop(daemon.ports[0]).close()
    daemon.comes_to(one=0, two=100)
    assert "L4CON" in daemon.ask("explain", "backend", "one").stdout
    assert "weight 100" in daemon.ask("balancer", "status").stdout
    assert daemon.ask("backend", "weight", "two", "30", "--reason", "canary").returncode == 0
    daemon.comes_to(one=0, two=30)
    daemon.process.kill()
    daemon.process.start()
    daemon.comes_to(one=0, two=30)


def test_a_reload_is_checked_and_a_bad_one_changes_nothing(daemon: Daemon) -> None:
    daemon.comes_to(one=100, two=100)
    daemon.write(", weight: 101")
    refused = daemon.ask("balancer", "reload")
    assert refused.returncode == 1
    assert "balancer.backends.two.weight: is 101, more than 100" in refused.stderr
    daemon.write(", weight: 50")
    os.kill(daemon.process.pid, signal.SIGHUP)
    daemon.comes_to(one=100, two=50)


def test_check_says_with_its_exit_code_what_a_file_is(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("balancer: {backends: {a: {address: 10.0.0.1}}}\n")
    bad.write_text("balancer: {backends: {a: {address: 10.0.0.1, prot: 1}}}\n")
    codes = [
        subprocess.run([HOLDFAST, "balancer", "--check", str(path)], capture_output=True, check=False).returncode
        for path in (good, tmp_path / "none.yaml", bad)
    ]
    assert codes == [0, 1, 2]
