"""The prober as a worker process, with a client as the balancer has one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from holdfast.balancer.probing.channel import ProberClient
from holdfast.balancer.probing.messages import ProbeReport, ProbeResult
from holdfast.balancer.probing.worker import PROBER, PROBES_SOCKET
from holdfast.config.root import Config, dump
from holdfast.config.sections.paths import PathSettings
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.pulse import Pulse
from holdfast.runtime.paths import RolePaths
from holdfast.testing.real.processes import Process

ROLE = "balancer"


class ProberWorker:
    """The process, and its reports so far."""

    def __init__(self, folder: Path) -> None:
        self.paths = RolePaths(ROLE, folder / "run", folder / "state")
        self.paths.prepare()
        folders = PathSettings(state=str(self.paths.state), runtime=str(self.paths.runtime))
        self.paths.config.write_bytes(dump(Config(paths=folders)))
        self._board = Board.create(self.paths.board, ["supervisor", PROBER.name])
        words = [ROLE, PROBER.name, PROBER.entry, str(self.paths.runtime), str(os.getpid())]
        self.process = Process([sys.executable, "-P", "-m", "holdfast.runtime.daemon", *words], log=folder / "log")
        self.client = ProberClient(self.paths.socket(PROBES_SOCKET))
        self.reports: list[ProbeReport] = []

    @property
    def results(self) -> list[ProbeResult]:
        return [result for report in self.reports for result in report.results]

    @property
    def state(self) -> str:
        """Its state on the board."""
        pulse = self._board.cell(PROBER.name, Pulse).read()
        return "" if pulse is None else pulse.state

    def connect(self) -> None:
        """Connects, and reconnects when the connection breaks."""
        self._receiving = asyncio.create_task(self._receive())

    async def disconnect(self) -> None:
        self._receiving.cancel()
        await asyncio.gather(self._receiving, return_exceptions=True)

    async def _receive(self) -> None:
        async with aclosing(self.client.reports()) as received:
            async for report in received:
                self.reports.append(report)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(60):
                while not condition():  # noqa: ASYNC110 -- what is waited for happens in another process
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{what}: not within a minute; {self.process.output}") from None


@asynccontextmanager
async def prober_worker(folder: Path) -> AsyncIterator[ProberWorker]:
    """A running prober with a connected client."""
    worker = ProberWorker(folder)
    worker.process.start()
    worker.connect()
    try:
        yield worker
    finally:
        await worker.disconnect()
        worker.process.stop()
