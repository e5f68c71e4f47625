"""Parts: pieces of a benchmark in processes of their own, such as the writer next to a measured reader.

A part is an async generator function at module level, `async def part(argument: A) -> AsyncIterator[R]`, with A and R
msgspec structs. The benchmark starts it and takes its reports one by one; the part continues between them. It ends
with the block that started it, and with the benchmark if that is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec

from bench.benchmark import Unmeasurable
from bench.machine import ROOT
from bench.quiet import logs_to_stderr

A = TypeVar("A", bound=msgspec.Struct)
R = TypeVar("R", bound=msgspec.Struct)

PATIENCE_S = 300
LONGEST_REPORT = 64 << 20
_PR_SET_PDEATHSIG = 1


@dataclass(slots=True)
class Part(Generic[R]):
    """A running part."""

    name: str
    process: asyncio.subprocess.Process
    _reports: msgspec.json.Decoder[R]

    async def report(self) -> R:
        """Wait for its next report. Raises `Unmeasurable` if it exits instead; its messages are on stderr then."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                line = await self.process.stdout.readline()
        except TimeoutError:
            raise Unmeasurable(f"{self.name} made no progress for {PATIENCE_S} s; try a smaller size") from None
        if not line:
            code = await self.process.wait()
            raise Unmeasurable(f"{self.name} ended with status {code} before it was done; see its messages above")
        return self._reports.decode(line)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)


@asynccontextmanager
async def started(function: Callable[[A], AsyncIterator[R]], argument: A) -> AsyncIterator[Part[R]]:
    """Run the function with that argument in a new interpreter."""
    name = f"{function.__module__}:{function.__qualname__}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__, name, str(os.getpid())),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        limit=LONGEST_REPORT,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(argument))
        process.stdin.close()
        yield Part(name, process, msgspec.json.Decoder(_types(function)[1]))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _types(function: Callable[..., Any]) -> tuple[type[Any], type[Any]]:
    """Return the types of the part's argument and of its reports."""
    hints = get_type_hints(function)
    (report,) = get_args(hints.pop("return"))
    (argument,) = hints.values()
    return argument, report


async def _run(function: Callable[[Any], AsyncIterator[Any]], reports: int) -> None:
    argument = msgspec.json.decode(sys.stdin.buffer.read(), type=_types(function)[0])
    async for report in function(argument):
        os.write(reports, msgspec.json.encode(report) + b"\n")


def _main(name: str, parent: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        return  # the parent died before we could ask to die with it
    logs_to_stderr()
    reports = os.dup(1)
    os.dup2(2, 1)  # a stray print must not be parsed as a report
    module, _, function = name.partition(":")
    asyncio.run(_run(getattr(importlib.import_module(module), function), reports))


if __name__ == "__main__":
    _main(*sys.argv[1:])
