"""Callers of a control socket: two groups, the user who logged in, and what a stranger may do."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.runtime.caller import READING, Access, AccessLevel, caller_name, group_id, login_uid, this_user
from holdfast.runtime.control import ControlServer, Request, Who

OWN, OPERATORS, READERS, STRANGER = 990, 4_001, 4_002, 4_711
GROUPS = Access(OWN, OPERATORS, READERS)


@pytest.mark.parametrize(
    ("uid", "groups", "level"),
    [
        (0, (), AccessLevel.OPERATOR),
        (OWN, (), AccessLevel.OPERATOR),
        (STRANGER, (OPERATORS, 5), AccessLevel.OPERATOR),
        (STRANGER, (READERS,), AccessLevel.READER),
        (STRANGER, (5,), AccessLevel.NONE),
    ],
)
def test_the_group_of_a_caller_decides(uid: int, groups: tuple[int, ...], level: AccessLevel) -> None:
    assert GROUPS.level(uid, groups) is level


def test_without_groups_whoever_can_open_the_socket_is_an_operator() -> None:
    assert Access(OWN).level(STRANGER, ()) is AccessLevel.OPERATOR


def test_with_readers_only_nobody_else_changes_anything() -> None:
    assert Access(OWN, readers=READERS).level(STRANGER, (READERS,)) is AccessLevel.READER
    assert Access(OWN, readers=READERS).level(STRANGER, ()) is AccessLevel.NONE


@pytest.mark.parametrize("command", ["pause", "allow", "restart", "reload", "step-down", "adopt", "sync", "new-one"])
def test_a_reader_changes_nothing_also_not_with_a_command_of_tomorrow(command: str) -> None:
    assert "may look, not change" in GROUPS.refusal(AccessLevel.READER, command)


def test_a_reader_may_look() -> None:
    assert [one for one in READING if GROUPS.refusal(AccessLevel.READER, one)] == []


def test_a_group_that_this_machine_lacks_is_named() -> None:
    with pytest.raises(LookupError, match="no group 'nosuchgroup': create it with groupadd"):
        group_id("nosuchgroup")


def test_the_environment_says_nothing_about_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "mallory")
    monkeypatch.setenv("LOGNAME", "mallory")
    assert "mallory" not in this_user()
    assert this_user().startswith(pwd.getpwuid(os.getuid()).pw_name)


def test_who_logged_in_is_named_beside_the_user() -> None:
    assert caller_name(0, 4_711) == "root (login uid 4711)"
    assert caller_name(4_711, 4_711) == caller_name(4_711, None) == "uid 4711"


ASK = """
import os, socket, sys
uid, gid, request, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if sys.argv[5]:
    with open("/proc/self/loginuid", "w") as file:
        file.write(sys.argv[5])
os.setgroups([gid]); os.setgid(65534); os.setuid(uid)
with socket.socket(socket.AF_UNIX) as peer:
    peer.connect(path)
    peer.sendall(request.encode() + b"\\n")
    print(peer.makefile().readline())
"""


async def _who(_request: Request, who: Who) -> str:
    return who.name


async def ask_as(path: Path, uid: int, gid: int, command: str, login: str = "") -> dict[str, Any]:
    """Ask a socket with both groups from a process of another user."""
    request = json.dumps({"do": command} if command != "pause" else {"do": "tell", "args": {"do": "pause"}})
    async with ControlServer(path, {"status": _who, "tell": _who}, access=Access(0, OPERATORS, READERS)):
        words = [sys.executable, "-c", ASK, str(uid), str(gid), request, str(path), login]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Return the name for a socket in a folder that every user may pass through."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder, "d.sock")


def test_a_reader_cannot_pause_through_the_socket(reachable: Path) -> None:
    assert asyncio.run(ask_as(reachable, STRANGER, READERS, "status")) == {"result": "uid 4711"}
    assert "may look, not change" in asyncio.run(ask_as(reachable, STRANGER, READERS, "pause")).get("error", "")
    assert asyncio.run(ask_as(reachable, STRANGER, OPERATORS, "pause")) == {"result": "uid 4711"}
    assert "may not use this daemon" in asyncio.run(ask_as(reachable, STRANGER, 5, "status")).get("error", "")


def test_the_user_who_logged_in_is_recorded_behind_another_uid(reachable: Path) -> None:
    try:
        Path("/proc/self/loginuid").write_text(str(login_uid() if login_uid() is not None else 2**32 - 1))
    except OSError as error:
        pytest.skip(f"needs a kernel that lets root set a login uid: {error.strerror}")
    assert asyncio.run(ask_as(reachable, STRANGER, OPERATORS, "status", login="4712")) == {
        "result": "uid 4711 (login uid 4712)"
    }
