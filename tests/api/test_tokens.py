"""Tokens and changes over HTTP: who may do what, and the attacks that must fail."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.api.sessions import RateLimit
from holdfast.api.tokens import TokenFile, TokenRole
from holdfast.cli import main
from holdfast.model.base.time import Instant, seconds
from holdfast.runtime.control import ControlServer, Request, Who, ask
from tests.api.sample import SampleDocuments, serving

PAUSE = {"action": "pause", "kind": "host", "name": "r001-01", "reason": "new NIC", "lasting": "30m"}


class Client:
    def __init__(self, port: int, documents: SampleDocuments, tokens: TokenFile) -> None:
        self._port = port
        self.documents, self.tokens = documents, tokens

    def call(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, dict[str, Any], http.client.HTTPMessage]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            content = None if body is None else json.dumps(body)
            connection.request(method, f"/api/v1/{path}", content, {"Content-Type": "application/json"} | named)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"{}"), answer.headers
        finally:
            connection.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    documents, tokens = SampleDocuments(), TokenFile(tmp_path / "tokens.json")
    with serving(documents, tokens=tokens) as port:
        yield Client(port, documents, tokens)


def test_only_an_admin_token_sets_an_intent_and_its_name_is_recorded(client: Client) -> None:
    read, admin = client.tokens.create("bob", TokenRole.READ), client.tokens.create("alice", TokenRole.ADMIN)
    statuses = [
        client.call("POST", "intents", PAUSE, **headers)[0]
        for headers in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {admin}"},
            {"Authorization": f"Bearer {read}"},
        )
    ]
    assert statuses == [401, 401, 401, 403]
    assert client.documents.intents == []
    assert client.call("POST", "intents", PAUSE, Authorization=f"Bearer {admin}")[0] == 200
    assert client.documents.intents[0]["who"] == "token alice"


def test_a_revoked_token_is_refused_at_once_and_its_session_ends(client: Client) -> None:
    admin = client.tokens.create("alice", TokenRole.ADMIN)
    status, _, headers = client.call("POST", "session", {"token": admin})
    cookie = headers["Set-Cookie"]
    assert status == 200
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert admin not in cookie
    session = cookie.partition(";")[0]
    assert client.call("GET", "session", Cookie=session)[1] == {"name": "alice", "role": "admin"}
    client.tokens.revoke("alice")
    assert client.call("POST", "intents", PAUSE, Cookie=session)[0] == 401
    assert client.call("POST", "session", {"token": admin})[0] == 401


def test_another_origin_cannot_use_the_cookie(client: Client) -> None:
    admin = client.tokens.create("alice", TokenRole.ADMIN)
    _, found, headers = client.call("POST", "session", {"token": admin})
    proven = {"Cookie": headers["Set-Cookie"].partition(";")[0], "Holdfast_Session": found["proof"]}
    for origin in ("http://evil.example", "http://127.0.0.1:1", "null"):
        assert client.call("POST", "intents", PAUSE, Origin=origin, **proven)[0] == 403
    assert client.documents.intents == []


def test_the_cookie_changes_nothing_without_the_secret_of_the_page(client: Client) -> None:
    admin = client.tokens.create("alice", TokenRole.ADMIN)
    _, found, headers = client.call("POST", "session", {"token": admin})
    session = headers["Set-Cookie"].partition(";")[0]
    assert found["proof"] not in headers["Set-Cookie"]
    for wrong in ({}, {"Holdfast_Session": "wrong"}, {"Holdfast_Session": "\u00e4"}):
        assert client.call("POST", "intents", PAUSE, Cookie=session, **wrong)[0] == 403
        assert client.call("DELETE", "session", Cookie=session, **wrong)[0] == 403
    assert client.documents.intents == []
    proven = {"Cookie": session, "Holdfast_Session": found["proof"]}
    assert client.call("POST", "intents", PAUSE, **proven)[0] == 200
    assert client.call("DELETE", "session", **proven)[0] == 204
    assert client.call("POST", "intents", PAUSE, **proven)[0] == 401


def test_a_release_needs_the_plan_that_was_seen(client: Client) -> None:
    client.documents.close_gate()
    bearer = f"Bearer {client.tokens.create('alice', TokenRole.ADMIN)}"
    body = {"gate": "syncer/witness", "reason": "looked at it"}
    assert client.call("POST", "gates/allow", body, Authorization=bearer)[0] == 428
    tag = client.call("GET", "plan?gate=syncer/witness")[2]["ETag"]
    client.documents.held["ctl-1/syncer"].pop()
    assert client.call("POST", "gates/allow", body, Authorization=bearer, If_Match=tag)[0] == 412
    tag = client.call("GET", "plan?gate=syncer/witness")[2]["ETag"]
    assert client.call("POST", "gates/allow", body, Authorization=bearer, If_Match=tag)[0] == 200
    assert client.documents.released == ("syncer/witness", "alice", "looked at it")


def test_guesses_are_limited_in_rate() -> None:
    limit, now = RateLimit(5), Instant(10**12)
    assert [limit.take(now) for _ in range(6)] == [True] * 5 + [False]
    assert limit.take(now + seconds(1.1))


def test_callers_without_a_token_do_not_use_up_the_rate_of_an_admin(client: Client) -> None:
    admin = client.tokens.create("alice", TokenRole.ADMIN)
    refused = [client.call("POST", "intents", PAUSE)[0] for _ in range(12)]
    refused += [client.call("POST", "session", {"token": "wrong"})[0] for _ in range(12)]
    assert set(refused) <= {401, 429}
    assert client.call("POST", "intents", PAUSE, Authorization=f"Bearer {admin}")[0] == 200
    assert client.call("POST", "session", {"token": admin})[0] == 200


def test_the_secret_is_printed_once_and_never_stored(tmp_path: Path) -> None:
    made = CliRunner().invoke(main, ["token", "create", "alice", "--role", "admin", "--state", str(tmp_path)])
    secret = made.stdout.strip()
    file = tmp_path / "tokens.json"
    assert made.exit_code == 0
    assert secret not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert TokenFile(file).find(secret) is not None
    assert CliRunner().invoke(main, ["token", "revoke", "alice", "--state", str(tmp_path)]).exit_code == 0
    assert TokenFile(file).find(secret) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes for another user")
def test_a_token_that_root_creates_leaves_the_file_to_the_daemon_and_follows_no_link(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("keep")
    folder = tmp_path / "state"
    folder.mkdir()
    (folder / "tokens.json.new").symlink_to(other)
    os.chown(folder, 65534, 65534)
    TokenFile(folder / "tokens.json").create("bob", TokenRole.READ)
    found = (folder / "tokens.json").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65534, 65534, 0o600)
    assert other.read_text() == "keep"


def test_writers_at_the_same_time_lose_no_token(tmp_path: Path) -> None:
    names = {f"t{number}" for number in range(24)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: TokenFile(tmp_path / "tokens.json").create(name, TokenRole.READ), names))
    assert {one.name for one in TokenFile(tmp_path / "tokens.json").all()} == names


def test_a_file_that_cannot_be_read_is_named_in_the_answer(client: Client) -> None:
    client.tokens.path.write_text("rubbish")
    status, problem, headers = client.call("POST", "intents", PAUSE, Authorization="Bearer x")
    assert (status, headers["Content-Type"]) == (503, "application/problem+json")
    assert str(client.tokens.path) in problem["detail"]
    assert "fix it, or delete it" in problem["detail"]


def test_only_the_name_of_a_token_can_be_given_to_a_control_socket_and_only_by_its_own_user(tmp_path: Path) -> None:
    async def answers() -> list[str]:
        async def handler(_request: Request, who: Who) -> str:
            return who.name

        me = os.geteuid(), os.getpid()
        async with ControlServer(tmp_path / "one.sock", {"who": handler}):
            named = (
                Who(*me, "token alice"),
                Who(*me, "alice"),
                Who(me[0], 1, "token alice"),
                Who(4711, me[1], "token x"),
            )
            asked = [await ask(tmp_path / "one.sock", Request("who", who=one)) for one in named]
        return [str(one.result or "refused") for one in asked]

    assert asyncio.run(answers()) == ["token alice", "refused", "refused", "refused"]
