"""The control socket under rubbish, silence, crowds and forgery; and paths that no socket address can hold."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime import caller, control
from holdfast.runtime.caller import AccessLevel
from holdfast.runtime.control import LINE_LIMIT, Answer, ControlServer, Declined, Request, Who, ask
from tests.runtime.harness import until


async def echo(request: Request, who: Who) -> Any:
    return {"args": request.args, "who": who.name, "pid": who.pid}


async def decline(_request: Request, _who: Who) -> Any:
    raise Declined("not today")


async def fail(_request: Request, _who: Who) -> Any:
    raise ZeroDivisionError("oops")


async def hang(_request: Request, _who: Who) -> Any:
    await asyncio.sleep(3_600)


class Barrier:
    """A command that runs until the test releases it."""

    def __init__(self) -> None:
        self.inside = 0
        self.open = asyncio.Event()

    async def __call__(self, _request: Request, _who: Who) -> Any:
        self.inside += 1
        await self.open.wait()


HANDLERS = {"echo": echo, "decline": decline, "fail": fail, "hang": hang}


def serving(
    scenario: Callable[[Path], Coroutine[Any, Any, None]],
) -> Callable[[Path], None]:
    """A test beside a server that listens in its folder."""

    def test(tmp_path: Path) -> None:
        async def whole() -> None:
            async with ControlServer(tmp_path / "lab.sock", HANDLERS):
                async with asyncio.timeout(60):
                    await scenario(tmp_path / "lab.sock")

        asyncio.run(whole())

    return test


@contextlib.asynccontextmanager
async def connected(path: Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 20)
    try:
        yield reader, writer
    finally:
        writer.close()


async def raw(path: Path, content: bytes) -> Any:
    """The answer to bytes that are sent as they are, or None when the connection ends without one."""
    async with connected(path) as (reader, writer):
        writer.write(content)
        with contextlib.suppress(ConnectionError):
            line = await reader.readline()
            return json.loads(line) if line else None


async def still_answers(path: Path) -> bool:
    return bool((await ask(path, Request("echo", {"a": 1}))).result["args"] == {"a": 1})


@serving
async def test_a_command_is_answered_with_who_asked_by_the_kernels_word(path: Path) -> None:
    answer = await ask(path, Request("echo", {"n": [1, "zwei"]}))
    assert answer == Answer({"args": {"n": [1, "zwei"]}, "who": caller._user(os.getuid()), "pid": os.getpid()})


@serving
async def test_several_commands_may_come_over_one_connection(path: Path) -> None:
    async with connected(path) as (reader, writer):
        for number in range(3):
            writer.write(b'{"do": "echo", "args": {"n": %d}}\n' % number)
            assert json.loads(await reader.readline())["result"]["args"] == {"n": number}


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b"\n",
        b"[]\n",
        b"null\n",
        b'{"do": 7}\n',
        b'{"args": {}}\n',
        b'{"do": "echo", "args": []}\n',
        b'{"do": "echo"',
        b"\x00\x01\x02\xff\xfe\n",
        b'{"do": "\xff\xfe"}\n',
        b"GET / HTTP/1.1\r\n\r\n",
        b"[" * 60_000 + b"\n",
        b'{"a":' * 10_000 + b"\n",
    ],
    ids=range(13),
)
def test_rubbish_is_answered_with_what_is_wrong_and_does_no_harm(tmp_path: Path, content: bytes) -> None:
    async def scenario(path: Path) -> None:
        async with connected(path) as (reader, writer):
            writer.write(content)
            writer.write_eof()
            answer = json.loads(await reader.readline())
        assert answer["error"].startswith("invalid request")
        assert await still_answers(path)

    serving(scenario)(tmp_path)


@serving
async def test_a_request_that_is_too_long_is_refused(path: Path) -> None:
    answer = await raw(path, b"x" * (LINE_LIMIT + 10) + b"\n")
    assert answer == {"error": f"the request is longer than {LINE_LIMIT} bytes"}
    assert await still_answers(path)


@serving
async def test_an_endless_line_is_cut_off(path: Path) -> None:
    async with connected(path) as (reader, writer):
        with contextlib.suppress(ConnectionError):
            for _ in range(1_000):
                writer.write(b"x" * 65_536)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            assert b"longer than" in await reader.read()
    assert await still_answers(path)


@serving
async def test_an_unknown_command_names_those_that_exist(path: Path) -> None:
    answer = await ask(path, Request("explode"))
    assert answer.error == "unknown command 'explode'; there are: decline, echo, fail, hang"


def test_who_is_starting_says_so_and_not_that_a_command_does_not_exist(tmp_path: Path) -> None:
    async def scenario() -> None:
        path, handlers, starting = tmp_path / "lab.sock", dict(HANDLERS), [True]
        async with ControlServer(path, handlers, is_starting=lambda: starting[0]):
            early = await ask(path, Request("dance"))
            assert early.error == "dance is not available yet: the process is starting; try again in a moment"
            assert (await ask(path, Request("echo"))).error == ""
            starting[0] = False
            assert (await ask(path, Request("dance"))).error.startswith("unknown command 'dance'")

    asyncio.run(scenario())


@serving
async def test_a_declined_command_is_one_sentence(path: Path) -> None:
    assert await ask(path, Request("decline")) == Answer(error="not today")


@serving
async def test_a_bug_in_a_command_ends_neither_the_server_nor_the_connection(path: Path) -> None:
    answer = await ask(path, Request("fail"))
    assert answer.error == "fail failed: ZeroDivisionError: oops (see the log of the daemon)"
    assert await still_answers(path)


@serving
async def test_a_forged_who_is_refused(path: Path) -> None:
    answer = await ask(path, Request("echo", who=Who(0, 1, "root")))
    assert answer.error == "only the supervisor may act on behalf of another caller"


@pytest.mark.parametrize("pid", [0, -1])
def test_a_peer_that_the_kernel_cannot_name_is_not_the_supervisor(tmp_path: Path, pid: int) -> None:
    """From another pid namespace the pid of a peer reads as 0, which must not match any process."""
    server = ControlServer(tmp_path / "lab.sock", HANDLERS)
    request = b'{"do": "echo", "who": {"uid": 0, "pid": 1, "name": "root"}}'
    answer = asyncio.run(server._answer(request, Who(1_000, pid, "mallory"), AccessLevel.OPERATOR))
    assert answer.error == "only the supervisor may act on behalf of another caller"


def test_the_supervisor_may_ask_on_behalf_of_another_caller(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with ControlServer(tmp_path / "lab.sock", HANDLERS, trusted=os.getpid()):
            answer = await ask(tmp_path / "lab.sock", Request("echo", who=Who(1_000, 77, "ada")))
            assert (answer.result["who"], answer.result["pid"]) == ("ada", 77)

    asyncio.run(scenario())


@serving
async def test_a_peer_that_sends_half_a_request_and_hangs_up_costs_nothing(path: Path) -> None:
    for content in (b"", b'{"do": "ec', b'{"do": "echo"}\n'):
        async with connected(path) as (_reader, writer):
            writer.write(content)
    assert await still_answers(path)


@serving
async def test_a_peer_that_closes_its_sending_side_gets_its_answer(path: Path) -> None:
    async with connected(path) as (reader, writer):
        writer.write(b'{"do": "echo"}\n')
        writer.write_eof()
        assert json.loads(await reader.readline())["result"]["args"] == {}
        assert await reader.read() == b""


@serving
async def test_a_hundred_silent_peers_do_not_keep_anybody_out(path: Path) -> None:
    async with contextlib.AsyncExitStack() as held:
        peers = [await held.enter_async_context(connected(path)) for _ in range(100)]
        for _, writer in peers[50:]:
            writer.write(b'{"do": ')  # slow ones, which never finish their line
        for _ in range(10):
            assert await still_answers(path)
        first, _ = peers[0]
        assert await first.read() == b""


@serving
async def test_a_silent_peer_is_sent_away_after_a_while(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "_IDLE", 0.2)
        async with connected(path) as (reader, _writer):
            assert await reader.read() == b""


def test_more_commands_at_once_than_can_be_done_are_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "lab.sock"

    async def scenario() -> None:
        barrier = Barrier()
        async with ControlServer(path, {**HANDLERS, "wait": barrier}), asyncio.timeout(60):
            crowd = [asyncio.create_task(ask(path, Request("wait"), 60)) for _ in range(control._PEERS)]
            await until(lambda: barrier.inside == control._PEERS)
            assert "commands at once: try again" in (await ask(path, Request("echo"))).error
            barrier.open.set()
            assert {answer.error for answer in await asyncio.gather(*crowd)} == {""}
            assert await still_answers(path)

    asyncio.run(scenario())


@serving
async def test_a_command_that_hangs_is_given_up_by_who_asked(path: Path) -> None:
    answer = await ask(path, Request("hang"), timeout=0.1)
    assert answer.error == f"no answer from {path} within 0.1 s: the process hangs or is overloaded"
    assert await still_answers(path)


@serving
async def test_the_socket_of_a_worker_is_for_its_owner_only(path: Path) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # noqa: PTH116


@pytest.mark.parametrize("folder", ["a folder with spaces", "ü" * 60, "/".join(["deep" * 10] * 5)])
def test_a_socket_may_lie_anywhere_however_long_its_path(tmp_path: Path, folder: str) -> None:
    deep = tmp_path / folder
    deep.mkdir(parents=True)

    async def scenario() -> None:
        async with ControlServer(deep / "lab.sock", HANDLERS):
            assert await still_answers(deep / "lab.sock")
        assert not (deep / "lab.sock").exists()

    asyncio.run(scenario())


def test_a_socket_that_a_killed_daemon_left_is_replaced(tmp_path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "lab.sock"))
    left.close()
    assert "is the daemon running?" in asyncio.run(ask(tmp_path / "lab.sock", Request("echo"))).error
    serving(_answers)(tmp_path)


async def _answers(path: Path) -> None:
    assert await still_answers(path)


def test_a_socket_without_a_listener_is_a_sentence(tmp_path: Path) -> None:
    answer = asyncio.run(ask(tmp_path / "nowhere" / "lab.sock", Request("echo")))
    assert answer.error == f"no process listens on {tmp_path}/nowhere/lab.sock: is the daemon running?"


@pytest.mark.parametrize("reply", [b"rubbish\n", b"", b"[1]\n", b"\xff\xfe\n"])
def test_an_answer_that_makes_no_sense_is_a_sentence(tmp_path: Path, reply: bytes) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply)
        writer.close()

    async def scenario() -> Answer:
        server = await asyncio.start_unix_server(respond, tmp_path / "lab.sock")
        async with server:
            return await ask(tmp_path / "lab.sock", Request("echo"))

    assert str(tmp_path / "lab.sock") in asyncio.run(scenario()).error


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_user_outside_the_group_is_refused_with_what_to_do(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:3]:
        if str(parent) not in ("/", "/tmp"):
            parent.chmod(0o755)

    async def scenario(path: Path) -> None:
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with contextlib.suppress(PermissionError):
                socket.socket(socket.AF_UNIX).connect(str(path))
                os._exit(1)
            os._exit(0)
        _, code = await asyncio.to_thread(os.waitpid, child, 0)
        assert code == 0

    serving(scenario)(tmp_path)


def test_an_idle_connection_at_a_clean_stop_is_no_failed_task(tmp_path: Path) -> None:
    """asyncio reports the task of a connection that the end of the loop cancels, and a worker would exit with 70."""
    failed: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
        async with ControlServer(tmp_path / "lab.sock", HANDLERS) as server:
            _reader, idle = await asyncio.open_unix_connection(tmp_path / "lab.sock")
            _reader, busy = await asyncio.open_unix_connection(tmp_path / "lab.sock")
            busy.write(json.dumps({"do": "hang"}).encode() + b"\n")
            await until(lambda: server._peers == 2)
        for writer in (idle, busy):
            writer.close()

    asyncio.run(scenario())
    assert failed == []
