"""Connection to VPP's binary API. Every call has a deadline, and a VPP that died or hangs is `Away`.

Requests of one batch are sent without waiting for answers; VPP carries them out in their order. The connection is
opened on first use and again after it was lost: each one is a new client, because message numbers change with VPP's
plugins.

A VPP hangs after a dozen clients that end without having deregistered: it takes the end of such a connection for "try
again", and reads it for ever (seen in 26.10-rc0). So each client is deregistered, also one of a VPP that hangs, which
reads that when it goes on; and a VPP that does not answer a new client is not given another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import grp
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from vpp_papi.vpp_papi_async import VPPApiClient, VPPApiError

from holdfast.model.base.time import Duration
from holdfast.reconcile import Away

log = structlog.get_logger(__name__)

DEADLINE = Duration(seconds=5)
"""Longest wait for the answers to one batch. VPP answers in milliseconds unless it hangs."""
RECONNECT = Duration(milliseconds=500)
"""Pause before a VPP that was not there is tried again."""
MAX_PAUSE = Duration(seconds=16)
"""Longest pause before one is tried again that lacks the plugin: it sends each client the definitions of all its
messages."""
PING = Duration(seconds=5)
"""Time after which an idle connection is tried, so that a VPP that hangs is noticed before something is to be done."""
MESSAGES = ("lb_conf_get", "lb_add_del_vip_v2", "lb_add_del_as_v2", "lb_as_set_weight", "lb_vip_dump", "lb_as_v2_dump")
"""Messages that the plane needs beyond those of any VPP."""
WHAT = "VPP"


class VppRequest(NamedTuple):
    """One message to VPP."""

    name: str
    fields: Mapping[str, Any] = {}


class _Attempt(NamedTuple):
    """An attempt to connect, which goes on while a VPP hangs."""

    client: Any
    connecting: asyncio.Task[int]
    socket: tuple[int, ...]


class _Refused(NamedTuple):
    """A VPP that lacks something, which is not tried again until then, unless it has been restarted."""

    why: str
    pause_s: float
    until: float
    socket: tuple[int, ...]


class VppConnection:
    """Connection to the API socket at `path`. An idle one is tried after `ping`."""

    def __init__(self, path: str, deadline: Duration = DEADLINE, ping: Duration = PING) -> None:
        self._path = path
        self._deadline_s = deadline.total_seconds()
        self._ping_s = ping.total_seconds()
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._attempt: _Attempt | None = None
        self._refused: _Refused | None = None
        self.calls = 0
        """Requests sent that are not dumps."""

    async def call(self, requests: Sequence[VppRequest]) -> list[Any]:
        """Send requests that change something, in order, and return VPP's answers. Raises `Away`."""
        self.calls += len(requests)
        return await self.query(requests) if requests else []

    async def query(self, requests: Sequence[VppRequest]) -> list[Any]:
        """Send requests that change nothing. Raises `Away`."""
        client = await self._connected()
        messages = [_message(client, one.name) for one in requests]
        return await self._answers(client, [send(**one.fields) for send, one in zip(messages, requests, strict=True)])

    async def dump(self, *names: str) -> list[list[Any]]:
        """Return the details that each of these dumps lists. Raises `Away`."""
        client = await self._connected()
        answers = await self._answers(client, [_message(client, name)() for name in names])
        return [list(details) for _, details in answers]

    async def ended(self) -> None:
        """Return when this connection, or the attempt to open one, has ended, and VPP answers again."""
        if self._client is not None:
            await self._until_end(self._client)
        while True:
            try:
                await self._connected()
            except Away as away:
                log.debug("VPP does not answer yet", error=str(away))
                await asyncio.sleep(RECONNECT.total_seconds())
            else:
                return

    async def _until_end(self, client: Any) -> None:
        while not (await asyncio.wait(_tasks(client), timeout=self._ping_s, return_when=asyncio.FIRST_COMPLETED))[0]:
            with contextlib.suppress(Away):  # then this client has been dropped
                await self._answers(client, [client.api.control_ping()])
        self._drop(client)

    async def disconnect(self) -> None:
        """Deregister from VPP, and close."""
        if self._client is not None:
            await self._deregister(self._client)
        self._give_up()

    async def _deregister(self, client: Any) -> None:
        if not any(task.done() for task in _tasks(client)):
            with contextlib.suppress(Away):
                await self._answers(client, [client.api.sockclnt_delete(index=client.socket_index)])
                del client.socket_index
        self._drop(client)

    async def _connected(self) -> Any:
        async with self._opening:
            if self._client is not None and any(task.done() for task in _tasks(self._client)):
                self._drop(self._client)
            if self._client is None:
                self._client = await self._open()
            return self._client

    async def _open(self) -> Any:
        sentence = refusal_of_socket(self._path)
        if sentence is not None:
            raise Away(WHAT, sentence)
        socket = _identity(self._path)
        refused = self._refused if self._refused is not None and self._refused.socket == socket else None
        if refused is not None and asyncio.get_running_loop().time() < refused.until:
            raise Away(WHAT, refused.why)
        client = await self._finished(socket)
        missing = [name for name in MESSAGES if not hasattr(client.api, name)]
        if missing:
            await self._deregister(client)
            pause_s = RECONNECT.total_seconds() if refused is None else 2 * refused.pause_s
            pause_s, now = min(pause_s, MAX_PAUSE.total_seconds()), asyncio.get_running_loop().time()
            self._refused = _Refused(refusal_of_version(missing), pause_s, now + pause_s, socket)
            raise Away(WHAT, self._refused.why)
        self._refused = None
        log.info("connected to VPP", socket=self._path)
        return client

    async def _finished(self, socket: tuple[int, ...]) -> Any:
        """Return the client of the attempt under way, or of a new one. Raises `Away` while it is not finished."""
        if self._attempt is None or self._attempt.socket != socket:
            self._give_up()
            made = VPPApiClient(server_address=self._path)
            self._attempt = _Attempt(made, asyncio.create_task(made.connect("holdfast", asyncio.Queue())), socket)
        client, connecting, _ = self._attempt
        awaited = {connecting, *_tasks(client)}
        await asyncio.wait(awaited, timeout=self._deadline_s, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done() and not any(task.done() for task in _tasks(client)):
            raise Away(WHAT, f"it does not answer on {self._path} within {self._deadline_s:g} s")
        self._attempt = None
        try:
            failed = connecting.result() if connecting.done() else 0
        except (OSError, EOFError, ValueError, VPPApiError, KeyError) as error:
            _close(client)
            raise Away(WHAT, f"cannot connect to {self._path}: {error or type(error).__name__}") from error
        if failed:
            raise Away(WHAT, f"cannot open {self._path}: is VPP running?")
        if not connecting.done():
            connecting.cancel()
            _close(client)
            raise Away(WHAT, f"it closed the connection to {self._path}")
        return client

    def _give_up(self) -> None:
        """End an attempt that is not finished."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.connecting.cancel()
            attempt.connecting.add_done_callback(_retrieve)
            _close(attempt.client)

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
        self._drop(client)
        said = f"it did not answer within {self._deadline_s:g} s" if hangs else "it closed the connection"
        raise Away(WHAT, f"{said}; what of this batch it has carried out is read back")

    def _drop(self, client: Any) -> None:
        if self._client is client:
            self._client = None
        _close(client)


def _identity(path: str) -> tuple[int, ...]:
    """Return what differs between the sockets of two starts of VPP."""
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return found.st_ino, found.st_ctime_ns


def refusal_of_socket(path: str) -> str | None:
    """Explain why this process cannot use the API socket; None if it may try."""
    try:
        owner = Path(path).stat().st_gid
    except PermissionError:
        return f"this user may not enter the folder of {path}: add it to the group of VPP's sockets"
    except OSError:
        return f"there is no socket {path}: is VPP running, with that socksvr socket-name?"
    if os.access(path, os.R_OK | os.W_OK, effective_ids=True):
        return None
    return f"this user may not use {path}: add it to the group {_group(owner)}, and restart this process"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def refusal_of_version(missing: Sequence[str]) -> str:
    """Sentence about a VPP that lacks messages of the lb plugin."""
    if len(missing) == len(MESSAGES):
        return "its lb plugin is not loaded: enable lb_plugin.so in VPP's configuration"
    return f"its lb plugin has no {missing[0]}: VPP 26.10 or newer is needed"


def _message(client: Any, name: str) -> Callable[..., asyncio.Future[Any]]:
    """Return the function that sends this message. Raises `Away`: VPP says itself which messages it has."""
    send: Callable[..., asyncio.Future[Any]] | None = getattr(client.api, name, None)
    if send is None:
        raise Away(WHAT, f"it has no {name}: VPP 26.10 or newer is needed")
    return send


def _tasks(client: Any) -> set[asyncio.Task[Any]]:
    found = {getattr(client, name, None) for name in ("socket_task", "queue_task")}
    return {task for task in found if task is not None}


def _close(client: Any) -> None:
    """Close the socket, and tell VPP, which may read it later, that this client has ended."""
    for task in _tasks(client):
        task.cancel()
        task.add_done_callback(_retrieve)
    writer = getattr(client, "writer", None)
    if writer is not None:
        with contextlib.suppress(OSError):
            if hasattr(client, "socket_index"):
                writer.write(_deregistration(client))
            writer.close()


def _deregistration(client: Any) -> bytes:
    message = client.messages["sockclnt_delete"]
    index = client.socket_index
    number = client.message_table[f"sockclnt_delete_{message.crc[2:]}"]
    packed: bytes = message.pack({"_vl_msg_id": number, "client_index": index, "context": 0, "index": index})
    header: bytes = client.header_struct.pack(0, len(packed), 0)
    return header + packed


def _retrieve(ended: asyncio.Future[Any]) -> None:
    """Take the exception of what ended with the connection; it is reported by whoever waits for an answer."""
    if not ended.cancelled():
        ended.exception()
