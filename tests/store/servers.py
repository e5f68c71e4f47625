"""Servers whose refusals the store client must word: etcd with TLS or authentication, and servers that are no etcd."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import socketserver
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.store.transport import wire
from holdfast.testing.real.etcd import etcd_command
from holdfast.testing.real.processes import Process, reserved_ports, tool, wait_until
from tests.store.certificates import Authority, Pair


@dataclass(frozen=True)
class RunningEtcd:
    """An etcd of these tests."""

    url: str
    own_port: int
    process: Process

    def restart(self) -> None:
        """Start it again, with its files as they are now, and wait until it is healthy."""
        if self.process.alive:
            self.process.kill()
        self.process.start()
        # It listens long before it answers, and a client's deadline would pass meanwhile.
        wait_until(lambda: _is_healthy(self.own_port), f"etcd is healthy: {self.process.output[-2000:]}", within=60)


@contextlib.contextmanager
def tls_etcd(folder: Path, authority: Authority, server: Pair) -> Iterator[RunningEtcd]:
    """An etcd that asks for client certificates."""
    options = ["--cert-file", str(server.cert), "--key-file", str(server.key)]
    with _etcd(folder, "https", [*options, "--client-cert-auth", "--trusted-ca-file", str(authority.pem)]) as etcd:
        yield etcd


@contextlib.contextmanager
def etcd_without_gateway(folder: Path) -> Iterator[str]:
    """An etcd whose JSON gateway is switched off; gives its URL."""
    with _etcd(folder, "http", ["--enable-grpc-gateway=false"]) as etcd:
        yield etcd.url


@contextlib.contextmanager
def plain_etcd(folder: Path) -> Iterator[RunningEtcd]:
    """An etcd without TLS and, so far, without authentication."""
    with _etcd(folder, "http", ()) as etcd:
        yield etcd


@contextlib.contextmanager
def _etcd(folder: Path, scheme: str, options: Sequence[str]) -> Iterator[RunningEtcd]:
    """Run a healthy etcd."""
    with reserved_ports(3) as (port, peer_port, own_port):
        url, peer, own = f"{scheme}://127.0.0.1:{port}", *(f"http://127.0.0.1:{one}" for one in (peer_port, own_port))
        command = etcd_command("etcd", folder / "data", url, peer, options=["--listen-metrics-urls", own, *options])
        etcd = RunningEtcd(url, own_port, Process(command, log=folder / "etcd.log"))
        try:
            etcd.restart()
            yield etcd
        finally:
            etcd.process.kill()


def switch_authentication_on(url: str, password: str, *login: str) -> None:
    """Makes the user root and turns authentication on; `login` are etcdctl's TLS flags."""
    environment = {**os.environ, "ETCDCTL_API": "3"}
    for command in (["user", "add", f"root:{password}"], ["user", "grant-role", "root", "root"], ["auth", "enable"]):
        call = [tool("etcdctl"), f"--endpoints={url}", *login, *command]
        subprocess.run(call, env=environment, check=True, capture_output=True, timeout=30)


@contextlib.contextmanager
def some_web_server() -> Iterator[str]:
    """A server that speaks HTTP and is not etcd."""
    with _threaded(http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Quiet)) as url:
        yield url


@contextlib.contextmanager
def some_learner(code: int = 9) -> Iterator[str]:
    """A member that is no voter yet, as etcd 3.5 (9, FailedPrecondition) or 3.4 (14, Unavailable) answers."""
    handler = type("_Learner", (_Quiet,), {"code": code, "do_POST": _refuse_as_learner})
    with _threaded(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as url:
        yield url


@contextlib.contextmanager
def some_other_server() -> Iterator[str]:
    """A server that does not speak HTTP at all."""
    with _threaded(socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Banner)) as url:
        yield url


class _Quiet(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(404)

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """The test's output is not the place for it."""


def _refuse_as_learner(self: Any) -> None:
    said: dict[str, object] = {"message": "etcdserver: rpc not supported for learner"}
    streaming = self.path in (wire.WATCH, wire.KEEPALIVE)
    answer = {"error": said | {"grpc_code": self.code}} if streaming else said | {"code": self.code}
    body = json.dumps(answer).encode()
    self.send_response(400 if self.code == 9 else 503)
    self.send_header("Content-Length", str(len(body)))
    self.end_headers()
    self.wfile.write(body)


class _Banner(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        self.request.recv(1 << 16)


@contextlib.contextmanager
def _threaded(server: socketserver.TCPServer) -> Iterator[str]:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _is_healthy(port: int) -> bool:
    """Return True if /health on the metrics port, which needs no credentials, answers 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
