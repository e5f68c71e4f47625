"""Proxies of the environment: whatever the variables say, no client of Holdfast sends them anything."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.server.webhook import Webhook
from holdfast.store.api import StoreError
from holdfast.store.transport.gateway import Connection
from tests.balancer.probing.harness import probe
from tests.store.harness import opened

HERE = "127.0.0.1"
LIBRARIES = r"^\s*(?:import|from) (?:requests|httpx|aiohttp|urllib3|urllib\.request)\b"
"""HTTP clients that ask the environment for a proxy."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A listening socket that every variable names as the proxy."""
    with socket.create_server((HERE, 0)) as listening:
        listening.setblocking(False)
        for scheme in ("http", "https", "all"):
            for name in (f"{scheme}_proxy", f"{scheme}_proxy".upper()):
                monkeypatch.setenv(name, f"http://{HERE}:{listening.getsockname()[1]}")
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield listening


class _Answering(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.heard.append(self.path)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        """Keep the output of the tests clean."""


@contextlib.contextmanager
def web_server() -> Iterator[tuple[int, list[str]]]:
    with http.server.ThreadingHTTPServer((HERE, 0), _Answering) as server:
        heard: list[str] = []
        server.heard = heard  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], heard
        finally:
            server.shutdown()
            thread.join(30)


def notify(port: int) -> None:
    assert asyncio.run(Webhook(f"http://{HERE}:{port}/hook")({"idempotency_key": "1"})) is None


def check(port: int) -> None:
    assert probe(HERE, port, type="http").passed


def ask_etcd(port: int) -> None:
    async def main() -> None:
        async with opened(Connection((f"http://{HERE}:{port}",))) as store:
            with contextlib.suppress(StoreError):
                await store.get(b"a")

    asyncio.run(main())


@pytest.mark.parametrize("client", [notify, check, ask_etcd])
def test_no_client_asks_a_proxy_of_the_environment(proxy: socket.socket, client: Callable[[int], None]) -> None:
    with web_server() as (port, heard):
        client(port)
    assert heard
    with pytest.raises(BlockingIOError):
        proxy.accept()


def test_no_library_that_asks_the_environment_is_used() -> None:
    root = Path(holdfast.__file__).parent
    users = [one for one in root.rglob("*.py") if re.search(LIBRARIES, one.read_text(encoding="utf-8"), re.MULTILINE)]
    assert [one for one in users if one.relative_to(root).parts[0] != "testing"] == []
