"""Commands that the supervisor forwards to a worker."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import ControlServer, Request, Unanswered, Who
from holdfast.runtime.daemon.commands import Supervises, SupervisorCommands
from holdfast.runtime.paths import RolePaths


def test_a_worker_is_waited_for_as_long_as_its_command_asks(tmp_path: Path) -> None:
    """A worker whose store hangs says so after seconds: until then it does not hang itself."""
    paths = RolePaths("server", tmp_path, tmp_path)
    commands = SupervisorCommands(paths, ["w"], SystemClock(), cast("Supervises", None))
    tell = commands.handlers()["tell"]

    async def main() -> Any:
        answered = asyncio.Event()

        async def slow(_request: Request, _who: Who) -> str:
            await answered.wait()
            return "stored"

        async with ControlServer(paths.socket("w"), {"pause": slow}, trusted=os.getpid()):
            who = Who(os.geteuid(), os.getpid(), "alice")
            with pytest.raises(Unanswered, match=r"no answer .* within 0.2 s"):
                await tell(Request("tell", {"do": "pause"}, "w", within=0.2), who)
            patient = asyncio.ensure_future(tell(Request("tell", {"do": "pause"}, "w", within=30.0), who))
            await asyncio.sleep(0)
            answered.set()
            return await patient

    assert asyncio.run(main()) == "stored"
