"""Control socket: one JSON line in, one JSON line out, between processes of one machine.

The kernel names the caller (peer credentials), never the request; only the daemon's own supervisor may act on behalf of
another caller when it forwards a request. An invalid request gets an answer that says what is wrong with it. A peer
that sends nothing, or too much, does not affect others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from holdfast.runtime.caller import Access, AccessLevel, peer_groups
from holdfast.runtime.caller import Who as Who

log = structlog.get_logger(__name__)

LINE_LIMIT = 1 << 16
ANSWER_LIMIT = 64 << 20
_IDLE = 10.0
_PEERS = 64


BY_API = "token "
"""Begin of the name of a caller that used a token of the API."""


def _is_token_of(named: Who, who: Who) -> bool:
    """Return True if the daemon's own user, or root, names a token: as the api worker does."""
    is_own = (named.uid, named.pid) == (who.uid, who.pid) and who.uid in (0, os.geteuid())
    return is_own and named.name.startswith(BY_API)


class Request(msgspec.Struct, frozen=True):
    """`do` names the command, `worker` the one to forward it to; `who` counts only when the supervisor sends it."""

    do: str
    args: dict[str, Any] = {}
    worker: str = ""
    who: Who | None = None
    within: float = 2.0
    """Seconds for which the supervisor waits for the worker's answer."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Either a result or an error."""

    result: Any = None
    error: str = ""
    silent: bool = False
    """True if the error is that a process does not answer: whether it refuses is not known."""


class Declined(Exception):
    """A command cannot be carried out; the message is for the operator who sent it."""


class Unanswered(Declined):
    """The process that the command is for does not answer."""


def _command(request: Request) -> str:
    """Return the command that is to be carried out, here or in a worker."""
    command = request.args.get("do") if request.do == "tell" else request.do
    return command if isinstance(command, str) else ""


Handler = Callable[[Request, Who], Awaitable[Any]]

_request = msgspec.json.Decoder(Request)
_answer = msgspec.json.Decoder(Answer)


class ControlServer:
    """Serves one socket with the given handlers."""

    def __init__(
        self,
        path: Path,
        handlers: Mapping[str, Handler],
        *,
        trusted: int | None = None,
        access: Access | None = None,
        is_starting: Callable[[], bool] = lambda: False,
    ) -> None:
        """Without `access`, only the own user may connect. While `is_starting` returns True, the owner may still add
        handlers."""
        self._path = path
        self._is_starting = is_starting
        self._handlers = handlers
        self._trusted = trusted
        self._access = access or Access(os.geteuid())
        self._mode = 0o600 if access is None else 0o666 if access.has_groups else 0o660
        self._server: asyncio.Server | None = None
        self._peers = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        """Tasks of the open connections."""
        self._idle: dict[asyncio.StreamWriter, None] = {}
        """Peers that have sent no request yet, the longest idle first."""

    async def __aenter__(self) -> ControlServer:
        self._path.unlink(missing_ok=True)
        with short_name(self._path) as name:
            self._server = await asyncio.start_unix_server(self._serve, path=name, limit=LINE_LIMIT)
        self._path.chmod(self._mode)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        """Close every connection and wait for its task: one that the end of the loop cancels looks like a crash."""
        if self._server is not None:
            self._server.close()
        self._path.unlink(missing_ok=True)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._peers += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            peer = writer.get_extra_info("socket")
            who = Who.of(peer)
            level = self._access.level(who.uid, peer_groups(peer) if self._access.has_groups else ())
            if self._peers > _PEERS and not self._make_room():
                await _send(writer, Answer(error=f"more than {_PEERS} commands at once: try again"))
                return
            await self._serve_requests(reader, writer, who, level)
        except (ConnectionError, TimeoutError):
            pass  # the peer disconnected, or never sent anything
        except asyncio.CancelledError:
            # asyncio reports a cancelled connection as a failed task, which ends a worker's process.
            log.debug("connection closed by the stop of the process", path=str(self._path))
        finally:
            self._tasks.discard(task)
            self._peers -= 1
            writer.close()

    def _make_room(self) -> bool:
        """Close the connection that has been idle for longest; returns False when none is idle."""
        silent = next(iter(self._idle), None)
        if silent is not None:
            del self._idle[silent]
            silent.close()
        return silent is not None

    async def _serve_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, who: Who, level: AccessLevel
    ) -> None:
        while True:
            self._idle[writer] = None
            try:
                async with asyncio.timeout(_IDLE):
                    line = await reader.readline()
            except ValueError:
                await _send(writer, Answer(error=f"the request is longer than {LINE_LIMIT} bytes"))
                return
            finally:
                self._idle.pop(writer, None)
            if not line:
                return
            await _send(writer, await self._answer(line, who, level))

    async def _answer(self, line: bytes, who: Who, level: AccessLevel) -> Answer:
        try:
            request = _request.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:  # ValueError: bytes that are not UTF-8
            return Answer(error=f"invalid request: {error}")
        if refused := self._access.refusal(level, _command(request)):
            return Answer(error=refused)
        if request.who is not None:
            if who.pid != self._trusted and not _is_token_of(request.who, who):
                return Answer(error="only the supervisor may act on behalf of another caller")
            who = request.who
        handler = self._handlers.get(request.do)
        if handler is None and self._is_starting():
            starting = f"{request.do} is not available yet: the process is starting; try again in a moment"
            return Answer(error=starting, silent=True)
        if handler is None:
            return Answer(error=f"unknown command {request.do!r}; there are: {', '.join(sorted(self._handlers))}")
        try:
            return Answer(result=await handler(request, who))
        except Declined as declined:
            return Answer(error=str(declined), silent=isinstance(declined, Unanswered))
        except Exception as error:
            log.exception("command failed", command=request.do)
            return Answer(error=f"{request.do} failed: {type(error).__name__}: {error} (see the log of the daemon)")


async def ask(path: Path, request: Request, timeout: float = 5.0) -> Answer:
    """Send one request. A process that does not answer gives an `Answer` with an error, too."""
    try:
        async with asyncio.timeout(timeout), _connected(path) as (reader, writer):
            await _send(writer, request)
            line = await reader.readline()
            if line:
                return _answer.decode(line)
            error = f"{path} closed the connection without an answer"
    except (FileNotFoundError, ConnectionRefusedError):
        error = f"no process listens on {path}: is the daemon running?"
    except PermissionError:
        error = f"this user may not open {path}: use sudo, or join the group of the socket"
    except TimeoutError:
        error = f"no answer from {path} within {timeout:g} s: the process hangs or is overloaded"
    except (OSError, ValueError, msgspec.MsgspecError) as failure:
        error = f"invalid answer from {path}: {failure}"
    return Answer(error=error, silent=True)


@contextlib.asynccontextmanager
async def _connected(path: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    with short_name(path) as name:
        reader, writer = await asyncio.open_unix_connection(name, limit=ANSWER_LIMIT)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _send(writer: asyncio.StreamWriter, message: msgspec.Struct) -> None:
    writer.write(msgspec.json.encode(message) + b"\n")
    await writer.drain()


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Yield a name for the socket that fits the 107 bytes of a socket address, however deep its folder is."""
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)
