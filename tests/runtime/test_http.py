"""HTTP of a daemon: metrics on a loopback port, bounded and safe from rebound names."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from holdfast.config.sections.http import HttpSettings
from holdfast.runtime.http import HttpServer


async def _exposition() -> str:
    return "holdfast_up 1\n"


def _server(folder: Path, port: int = 0) -> HttpServer:
    return HttpServer(("127.0.0.1", port), {"/metrics": _exposition}, folder / "agent.http")


async def _send(folder: Path, raw: bytes) -> str:
    host, _, port = (folder / "agent.http").read_text().rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(raw)
    answer = await reader.read()
    writer.close()
    return answer.decode()


def _ask(folder: Path, raw: bytes) -> str:
    async def run() -> str:
        async with _server(folder):
            return await _send(folder, raw)

    return asyncio.run(run())


def test_metrics_are_served_as_prometheus_reads_them(tmp_path: Path) -> None:
    answer = _ask(tmp_path, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200")
    assert "text/plain; version=0.0.4" in answer
    assert answer.endswith("holdfast_up 1\n")


def test_head_has_no_body(tmp_path: Path) -> None:
    answer = _ask(tmp_path, b"HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200")
    assert answer.endswith("\r\n\r\n")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: evil.example:9621\r\n\r\n", 403),
        (b"GET /else HTTP/1.1\r\nHost: [::1]\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 405),
        (b"\x00rubbish\r\n\r\n", 400),
        (b"GET /" + b"a" * 40_000, 400),
    ],
)
def test_other_requests_are_refused(tmp_path: Path, raw: bytes, status: int) -> None:
    assert _ask(tmp_path, raw).startswith(f"HTTP/1.1 {status}")


def test_a_taken_port_does_not_stop_the_daemon(tmp_path: Path) -> None:
    async def run() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            async with _server(tmp_path, taken.getsockname()[1]):
                assert not (tmp_path / "agent.http").exists()

    asyncio.run(run())


def test_each_role_has_a_loopback_port_of_its_own() -> None:
    roles = ("server", "agent", "balancer", "lab")
    assert [HttpSettings().listens_on(role) for role in roles] == [
        *(("127.0.0.1", port) for port in (9621, 9622, 9623)),
        None,
    ]
    assert HttpSettings(address="[::1]:80").listens_on("agent") == ("::1", 80)
    assert HttpSettings(address="off").listens_on("agent") is None
