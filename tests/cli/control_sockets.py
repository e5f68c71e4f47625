"""Control sockets of several daemons on one machine, answered in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from holdfast.runtime.control import ControlServer, Handler


@contextmanager
def control_sockets(folder: Path, handlers: Mapping[str, Mapping[str, Handler]]) -> Iterator[Path]:
    """Serve the socket of a server of each of these names, as in a lab. Yields the runtime folder."""
    ready, done, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            for name, answers in handlers.items():
                (folder / name).mkdir()
                await stack.enter_async_context(ControlServer(folder / name / "server.sock", answers))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield folder
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(30)
        loop.close()
