"""`holdfast balancer` as real processes: prober and reconciler, with servers of the test's own, on dry-run."""

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
from typing import Any

import pytest

from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.runtime.control import Request, ask
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import Process, folder, reserved_ports, wait_until

HOLDFAST = str(Path(sys.executable).parent / "holdfast")


class Daemon:
    """A balancer with two backends, `one` and `two`, behind 192.0.2.1."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self._held = contextlib.ExitStack()
        self.ports = self._held.enter_context(reserved_ports(2))  # a dead backend's must not become a neighbour's
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
  dataplane: {{kind: dry-run}}
  startup-min-delay: 500ms
  startup-max-delay: 20s
  healthchecks: {{web: {{type: tcp, interval: 100ms, timeout: 5s}}}}
  backends:
    one: {{address: 127.0.0.1, port: {one}, healthcheck: web}}
    two: {{address: 127.0.0.1, port: {two}, healthcheck: web{extra}}}
  frontends:
    www: {{address: 192.0.2.1, port: 80, pools: [{{backends: {{one: , two: }}}}]}}
""")

    def stop(self) -> None:
        self.process.stop()
        for server in self.servers.values():
            server.close()
        self._held.close()

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [HOLDFAST, *words, "--runtime", str(self.base / "run")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def weights(self) -> dict[str, int | None]:
        request = Request("tell", {"do": "balancer"}, "vips")
        said = asyncio.run(ask(self.base / "run" / "balancer.sock", request))
        if said.error or not said.result["frontends"]:
            return {}
        return {member["backend"]: member["programmed"] for member in said.result["frontends"][0]["pools"][0]}

    def comes_to(self, **weights: int) -> None:
        wait_until(lambda: self.weights() == weights, f"weights are {weights}:\n{self.process.output}", within=180)


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
            running.stop()


def test_a_failed_backend_loses_its_weight_and_an_intent_survives_a_kill(daemon: Daemon) -> None:
    daemon.comes_to(one=100, two=100)
    daemon.servers.pop(daemon.ports[0]).close()
    daemon.comes_to(one=0, two=100)
    assert "L4CON" in daemon.ask("explain", "backend", "one").stdout
    assert "weight 100" in daemon.ask("balancer", "status").stdout
    assert daemon.ask("weight", "backend", "two", "30", "--reason", "canary").returncode == 0
    daemon.comes_to(one=0, two=30)
    assert "give --frontend" in daemon.ask("weight", "pool", "0", "20", "--reason", "tests").stderr
    assert daemon.ask("weight", "pool", "0", "20", "--frontend", "www", "--reason", "tests").returncode == 0
    daemon.comes_to(one=0, two=20)
    daemon.process.kill()
    daemon.process.start()
    daemon.comes_to(one=0, two=20)
    assert daemon.ask("weight", "pool", "0", "--reset", "--frontend", "www").returncode == 0
    daemon.comes_to(one=0, two=30)


def test_a_reload_is_checked_and_a_bad_one_changes_nothing(daemon: Daemon) -> None:
    daemon.comes_to(one=100, two=100)
    daemon.write(", weight: 101")
    refused = daemon.ask("config", "reload")
    assert refused.returncode == 1
    assert "balancer.backends.two.weight: is 101, more than 100" in refused.stderr
    daemon.write(", weight: 50")
    os.kill(daemon.process.pid, signal.SIGHUP)
    daemon.comes_to(one=100, two=50)


MORE = """\
balancer:
  backends: {{two: {{address: 127.0.0.1, port: {port}, healthcheck: web{extra}}}}}
"""


class Watched(Daemon):
    """The same, but a changed file is reloaded unasked."""

    def write(self, extra: str = "") -> None:
        super().write(extra)
        self.config.write_text(self.config.read_text() + "  reload-on-change: true\n")


def test_a_file_of_the_folder_is_reloaded_unasked_and_one_that_repeats_a_name_is_refused() -> None:
    with folder() as base:
        daemon = Watched(base)
        try:
            daemon.comes_to(one=100, two=100)
            main, part = daemon.config.read_text().splitlines(keepends=True), base / "balancer.d" / "two.yaml"
            part.parent.mkdir()
            daemon.config.write_text("".join(line for line in main if not line.startswith("    two:")))
            part.write_text(MORE.format(port=daemon.ports[1], extra=", weight: 50"))
            daemon.comes_to(one=100, two=50)
            again = part.with_name("zwei.yaml")
            again.write_text(MORE.format(port=daemon.ports[1], extra=""))
            refused = daemon.ask("config", "reload")
            assert refused.returncode == 1
            assert f"{again}:2:14: balancer.backends.two: is defined in {part}:2 already: remove one" in refused.stderr
        finally:
            daemon.stop()


class FromStore(Daemon):
    """The same, but what is served stands in etcd, in a region of its own."""

    def __init__(self, base: Path, etcd: EtcdCluster) -> None:
        self._etcd = etcd
        self._region = Region(f"balancer-{os.getpid()}")
        super().__init__(base)

    def write(self, extra: str = "") -> None:
        self.config.write_text(f"""\
paths: {{state: {self.base}/state, runtime: {self.base}/run}}
store: {{endpoints: ["{self._etcd.endpoints[0]}"], region: {self._region.name}}}
balancer: {{source: etcd, dataplane: {{kind: dry-run}}, startup-min-delay: 500ms, startup-max-delay: 20s}}
""")

    def fill(self) -> None:
        pool = Pool(backends={"one": PoolMember(), "two": PoolMember(weight=40)})
        check = HealthCheck(type="tcp", interval=seconds(0.1), timeout=seconds(5))
        self._put(HEALTH_CHECK, "web", check)
        for name, port in zip(("one", "two"), self.ports, strict=True):
            self._put(BACKEND, name, Backend(address="127.0.0.1", port=port, healthcheck=("web",)))
        self._put(FRONTEND, "www", Frontend(address="192.0.2.1", port=80, pools=(pool,)))
        self._put(IDENTITY, "identity", Identity("fleet-a", 1))

    def _put(self, kind: Kind[Any, str], name: str, value: object) -> None:
        async def put() -> None:
            store = EtcdStore(Connection(tuple(self._etcd.endpoints)))
            await store.put(kind.key(self._region, name), kind.encode(value))
            await store.close()

        asyncio.run(put())


def test_services_in_a_real_etcd_are_served_and_intents_are_stored_there(one_etcd: EtcdCluster) -> None:
    with folder() as base:
        daemon = FromStore(base, one_etcd)
        try:
            daemon.fill()
            daemon.comes_to(one=100, two=40)
            assert daemon.ask("pause", "backend", "two", "--reason", "new disk").returncode == 0
            daemon.comes_to(one=100, two=0)
            assert daemon.ask("resume", "backend", "two").returncode == 0
            daemon.comes_to(one=100, two=40)
        finally:
            daemon.stop()


def test_check_says_with_its_exit_code_what_a_file_is(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("balancer: {backends: {a: {address: 10.0.0.1}}}\n")
    bad.write_text("balancer: {backends: {a: {address: 10.0.0.1, prot: 1}}}\n")
    codes = [
        subprocess.run([HOLDFAST, "balancer", "--check", str(path)], capture_output=True, check=False).returncode
        for path in (good, tmp_path / "none.yaml", bad)
    ]
    assert codes == [0, 1, 2]
