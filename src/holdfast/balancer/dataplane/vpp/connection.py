"""Connection to VPP's binary API. Every call has a deadline, and a VPP that died or hangs is `Away`.

Requests of one batch are sent without waiting for answers; VPP carries them out in their order. The connection is
opened on first use and again after it was lost: each one is a new client, because message numbers change with VPP's
plugins.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import structlog
from vpp_papi.vpp_papi_async import VPPApiClient, VPPApiError

from holdfast.model.base.time import Duration
from holdfast.reconcile import Away

log = structlog.get_logger(__name__)

DEADLINE = Duration(seconds=5)
"""Longest wait for the answers to one batch. VPP answers in milliseconds unless it hangs."""
RECONNECT = Duration(milliseconds=500)
MESSAGES = ("lb_conf_get", "lb_add_del_vip_v2", "lb_add_del_as_v2", "lb_as_set_weight", "lb_vip_dump", "lb_as_v2_dump")
"""Messages that the plane needs beyond those of any VPP."""
WHAT = "VPP"


class VppRequest(NamedTuple):
    """One message to VPP."""

    name: str
    fields: Mapping[str, Any] = {}


class VppConnection:
    """Connection to the API socket at `path`."""

    def __init__(self, path: str, deadline: Duration = DEADLINE) -> None:
        self._path = path
        self._deadline_s = deadline.total_seconds()
        self._client: Any = None
        self._opening = asyncio.Lock()
        self.calls = 0
        """Requests sent that are not dumps."""

    async def call(self, requests: Sequence[VppRequest]) -> list[Any]:
        """Send requests that change something, in order, and return VPP's answers. Raises `Away`."""
        self.calls += len(requests)
        return await self.query(requests) if requests else []

    async def query(self, requests: Sequence[VppRequest]) -> list[Any]:
        """Send requests that change nothing. Raises `Away`."""
        client = await self._connected()
        return await self._answers(client, [getattr(client.api, one.name)(**one.fields) for one in requests])

    async def dump(self, *names: str) -> list[list[Any]]:
        """Return the details that each of these dumps lists. Raises `Away`."""
        client = await self._connected()
        answers = await self._answers(client, [getattr(client.api, name)() for name in names])
        return [list(details) for _, details in answers]

    async def ended(self) -> None:
        """Return when this connection, or the attempt to open one, has ended, and VPP answers again."""
        if self._client is not None:
            await asyncio.wait(_tasks(self._client), return_when=asyncio.FIRST_COMPLETED)
            self._drop()
        while True:
            try:
                await self._connected()
            except Away as away:
                log.debug("VPP does not answer yet", error=str(away))
                await asyncio.sleep(RECONNECT.total_seconds())
            else:
                return

    async def disconnect(self) -> None:
        """Deregister from VPP, and close. A VPP whose clients vanish without it hangs after a dozen of them: it takes
        the end of a connection for "try again", and reads it for ever (seen in 26.10-rc0)."""
        client = self._client
        if client is not None and not any(task.done() for task in _tasks(client)):
            with contextlib.suppress(Away):
                await self._answers(client, [client.api.sockclnt_delete(index=client.socket_index)])
        self._drop()

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is not None and any(task.done() for task in _tasks(self._client)):
                self._drop()
            if self._client is None:
                self._client = await self._open()
            return self._client

    async def _open(self) -> Any:
        client = VPPApiClient(server_address=self._path)
        try:
            async with asyncio.timeout(self._deadline_s):
                failed = await client.connect("holdfast", asyncio.Queue())
        except TimeoutError as error:
            _close(client)
            raise Away(WHAT, f"it does not answer on {self._path} within {self._deadline_s:g} s") from error
        except (OSError, EOFError, VPPApiError, KeyError) as error:
            _close(client)
            raise Away(WHAT, f"cannot connect to {self._path}: {error or type(error).__name__}") from error
        if failed:
            raise Away(WHAT, f"cannot open {self._path}: is VPP running, and may this user use its API socket?")
        missing = [name for name in MESSAGES if not hasattr(client.api, name)]
        if missing:
            _close(client)
            raise Away(WHAT, refusal_of_version(missing))
        log.info("connected to VPP", socket=self._path)
        return client

    async def _answers(self, client: Any, futures: Sequence[asyncio.Future[Any]]) -> list[Any]:
        """Wait for all answers, for the deadline, or for the end of the connection, whichever is first."""
        everything: asyncio.Future[Any] = asyncio.gather(*futures)
        await asyncio.wait({everything, *_tasks(client)}, timeout=self._deadline_s, return_when=asyncio.FIRST_COMPLETED)
        if everything.done():
            answers: list[Any] = everything.result()
            return answers
        hangs = not any(task.done() for task in _tasks(client))
        everything.add_done_callback(_retrieve)
        everything.cancel()
        self._drop()
        said = f"it did not answer within {self._deadline_s:g} s" if hangs else "it closed the connection"
        raise Away(WHAT, f"{said}; what of this batch it has carried out is read back")

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            _close(client)


def refusal_of_version(missing: Sequence[str]) -> str:
    """Sentence about a VPP that lacks messages of the lb plugin."""
    if len(missing) == len(MESSAGES):
        return "its lb plugin is not loaded: enable lb_plugin.so in VPP's configuration"
    return f"its lb plugin has no {missing[0]}: VPP 26.10 or newer is needed"


def _tasks(client: Any) -> set[asyncio.Task[Any]]:
    return {client.socket_task, client.queue_task}


def _close(client: Any) -> None:
    """Close the socket of a VPP that is gone or hangs."""
    for name in ("socket_task", "queue_task"):
        task = getattr(client, name, None)
        if task is not None:
            task.cancel()
            task.add_done_callback(_retrieve)
    writer = getattr(client, "writer", None)
    if writer is not None:
        with contextlib.suppress(OSError):
            writer.close()


def _retrieve(ended: asyncio.Future[Any]) -> None:
    """Take the exception of what ended with the connection; it is reported by whoever waits for an answer."""
    if not ended.cancelled():
        ended.exception()
