"""The HTTP API: requests per second, their latency, and the delay of the event stream.

A real server with an etcd serves the API on loopback, without TLS; clients and server share this machine.

- get: every client asks for `/api/v1/status` over one connection, again as soon as it has the answer.
- sse: every client follows `/api/v1/stream` (at most 32 do), while the fleet is paused twice a second, each time for
  another reason. The lag is from the answer to the change until a client has an event with that reason or a later one;
  documents are read once a second. `sse_clients` counts the clients that got the last change, within 3 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from bench.benchmark import Benchmark, Unmeasurable
from bench.server import etcd_in_memory, scratch
from holdfast.api.stream.feed import MOST_CLIENTS
from holdfast.api.tokens import FILE, TokenFile, TokenRole

START_S = 60.0
EVERY_S = 0.5
LATE_S = 3.0
REASON = re.compile(rb"benchmark (\d+)")


class Options(msgspec.Struct, frozen=True):
    clients: Annotated[int, msgspec.Meta(ge=1, le=60, description="connections at the same time")] = 32
    seconds: Annotated[float, msgspec.Meta(gt=0, description="duration of each part")] = 5


class Figures(msgspec.Struct, frozen=True):
    get_per_s: float
    p99_ms: float
    sse_clients: int
    sse_lag_p99_ms: float


@dataclass
class Listener:
    """One client of the stream: when it had each change."""

    got: dict[int, float] = field(default_factory=dict)

    def take(self, line: bytes, now: float) -> None:
        newest = max(map(int, REASON.findall(line)), default=-1)
        for number in range(newest, -1, -1):
            if self.got.setdefault(number, now) != now:
                return


def measure(options: Options) -> Figures:
    return asyncio.run(_measured(options))


async def _measured(options: Options) -> Figures:
    async with _served() as (port, token):
        latencies = await _gets(port, options)
        done, listeners = await _streamed(port, token, options)
    lags = [one.got[number] - at for one in listeners for number, at in done.items() if number in one.got]
    if not lags:
        raise Unmeasurable("no change arrived in a stream; run it when the machine is less busy")
    return Figures(
        get_per_s=len(latencies) / options.seconds,
        p99_ms=1_000 * _p99(latencies),
        sse_clients=sum(max(done) in one.got for one in listeners),
        sse_lag_p99_ms=1_000 * _p99(lags),
    )


async def _gets(port: int, options: Options) -> list[float]:
    """Return the latency of every request that ended in time."""
    end = time.monotonic() + options.seconds

    async def client() -> list[float]:
        found: list[float] = []
        async with _connected(port) as (reader, writer):
            while (began := time.monotonic()) < end:
                await _answer(reader, writer, "GET", "/api/v1/status")
                found.append(time.monotonic() - began)
        return found

    return [one for part in await asyncio.gather(*(client() for _ in range(options.clients))) for one in part]


async def _streamed(port: int, token: str, options: Options) -> tuple[dict[int, float], list[Listener]]:
    """Change something while clients listen; return when each change was made, and the listeners."""
    listeners = [Listener() for _ in range(min(options.clients, MOST_CLIENTS))]
    opened = [asyncio.Event() for _ in listeners]
    tasks = [asyncio.create_task(_listen(port, one, event)) for one, event in zip(listeners, opened, strict=True)]
    try:
        async with asyncio.timeout(START_S):
            await asyncio.gather(*(event.wait() for event in opened))
        done = await _changes(port, token, options)
        await asyncio.sleep(LATE_S)
    except TimeoutError as error:
        raise Unmeasurable(f"not every client of the stream got its documents in {START_S:g} s") from error
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return done, listeners


async def _listen(port: int, listener: Listener, opened: asyncio.Event) -> None:
    async with _connected(port) as (reader, writer):
        writer.write(_request("GET", "/api/v1/stream"))
        while line := await reader.readline():
            listener.take(line, time.monotonic())
            if line.startswith(b"event: fleet"):
                opened.set()


async def _changes(port: int, token: str, options: Options) -> dict[int, float]:
    done: dict[int, float] = {}
    bearer = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    async with _connected(port) as (reader, writer):
        for number in range(max(1, int(options.seconds / EVERY_S))):
            body = json.dumps({"action": "pause", "kind": "fleet", "reason": f"benchmark {number}"}).encode()
            await _answer(reader, writer, "POST", "/api/v1/intents", bearer, body)
            done[number] = time.monotonic()
            await asyncio.sleep(EVERY_S)
    return done


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: str,
    path: str,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> bytes:
    writer.write(_request(method, path, headers, body))
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    content = await reader.readexactly(int(length[1])) if length else b""
    if b" 200 " not in head.partition(b"\r\n")[0]:
        raise Unmeasurable(f"{method} {path} was not answered with 200: {head.decode().splitlines()[0]}")
    return content


def _request(method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> bytes:
    named = {"Host": "localhost", "Content-Length": str(len(body)), **(headers or {})}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextlib.asynccontextmanager
async def _connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        yield reader, writer
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def _served() -> AsyncIterator[tuple[int, str]]:
    """Run a server with the API; yield its port and an admin token."""
    with scratch() as name:
        folder = Path(name)
        async with etcd_in_memory() as etcd:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = int(free.getsockname()[1])
            token = TokenFile(folder / "state" / FILE).create("bench", TokenRole.ADMIN)
            (folder / "state").chmod(0o700)
            with _daemon(folder, port, etcd.endpoint):
                await _leads(port)
                yield port, token


@contextlib.contextmanager
def _daemon(folder: Path, port: int, endpoint: str) -> Iterator[None]:
    settings = {
        "paths.runtime": folder / "run",
        "paths.state": folder / "state",
        "http.address": "off",
        "http.api": f"127.0.0.1:{port}",
        "store.endpoints": endpoint,
    }
    flags = [f"--set={name}={value}" for name, value in settings.items()]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "holdfast.cli", "server", *flags], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


async def _leads(port: int) -> None:
    try:
        async with asyncio.timeout(START_S):
            while True:
                with contextlib.suppress(OSError, Unmeasurable, asyncio.IncompleteReadError):
                    async with _connected(port) as (reader, writer):
                        await _answer(reader, writer, "GET", "/leader")
                        return
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise Unmeasurable(f"the server does not lead after {START_S:g} s") from error


def _p99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


BENCHMARK = Benchmark(Options, measure)
