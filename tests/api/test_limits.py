"""Limits of the API under load and attack: bodies, listeners; and what a listener that comes back is sent."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.api.stream.feed import MOST_CLIENTS
from holdfast.api.tokens import TokenFile, TokenRole
from holdfast.testing.real.processes import wait_until
from tests.api.sample import SampleDocuments, serving

JSON = {"Content-Type": "application/json"}
LIMIT = 65_536


@contextlib.contextmanager
def answered(
    port: int, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, f"/api/v1/{path}", body, headers or {})
        yield connection.getresponse()
    finally:
        connection.close()


def test_a_body_beyond_64_kib_is_refused_whoever_sends_it(tmp_path: Path) -> None:
    documents, tokens = SampleDocuments(), TokenFile(tmp_path / "tokens.json")
    bearer = {"Authorization": f"Bearer {tokens.create('alice', TokenRole.ADMIN)}", **JSON}
    pause = {"action": "pause", "kind": "host", "name": "r001-01", "reason": "x" * LIMIT}
    with serving(documents, tokens=tokens) as port:
        for path, headers in (("session", JSON), ("intents", bearer)):
            with answered(port, "POST", path, json.dumps(pause), headers) as answer:
                assert answer.status == 413
                assert answer.getheader("Content-Type") == "application/problem+json"
        assert documents.intents == []


def test_a_body_without_length_is_refused_before_it_ends(tmp_path: Path) -> None:
    chunk = b"1000\r\n" + b"x" * 4_096 + b"\r\n"
    head = b"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with (
        serving(SampleDocuments(), tokens=TokenFile(tmp_path / "tokens.json")) as port,
        socket.create_connection(("127.0.0.1", port), timeout=60) as attacker,
    ):
        attacker.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * (LIMIT // 4_096 + 1))
        assert attacker.recv(4_096).startswith(b"HTTP/1.1 413 ")
        with answered(port, "GET", "status") as answer:
            assert answer.status == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"action": "stop", "kind": "host"}, "action: Invalid enum value"),
        ({"action": "pause", "kind": "host", "why": "x"}, "Object contains unknown field `why`"),
        ({"action": "pause", "kind": "host", "x" * 60_000: 1}, "Object contains unknown field `xxx"),
    ],
)
def test_a_refused_body_is_told_what_is_wrong_with_which_field(
    tmp_path: Path, body: dict[str, object], said: str
) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    bearer = {"Authorization": f"Bearer {tokens.create('alice', TokenRole.ADMIN)}", **JSON}
    with (
        serving(SampleDocuments(), tokens=tokens) as port,
        answered(port, "POST", "intents", json.dumps(body), bearer) as answer,
    ):
        detail = json.loads(answer.read())["detail"]
        assert answer.status == 400
        assert said in detail
        assert len(detail) < 500, "an answer does not send the whole body back"


def events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, str, str]]:
    """Yield id, event and data of each message, ticks left out."""
    found: dict[str, str] = {}
    while raw := answer.readline():
        if line := raw.decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            found[name] = value
        elif found:
            if found.get("event") not in (None, "tick"):
                yield found.get("id", ""), found["event"], found["data"]
            found = {}


def test_a_listener_too_many_is_refused_until_one_goes() -> None:
    with serving(SampleDocuments()) as port, contextlib.ExitStack() as listening:
        streams = [listening.enter_context(contextlib.ExitStack()) for _ in range(MOST_CLIENTS)]
        for stream in streams:
            answer = stream.enter_context(answered(port, "GET", "stream"))
            assert (answer.status, answer.readline()) == (200, b"retry: 1000\n")
        with answered(port, "GET", "stream") as answer:
            assert answer.status == 503
            assert b"32 clients listen already" in answer.read()
        streams[0].close()

        def is_admitted() -> bool:
            with answered(port, "GET", "stream") as answer:
                return answer.status == 200

        wait_until(is_admitted, "a place to be free", within=60)


@pytest.mark.parametrize("way", ["header", "parameter"])
def test_a_listener_that_comes_back_is_sent_every_decision_that_it_missed_once(way: str) -> None:
    documents = SampleDocuments()
    with serving(documents) as port:
        with answered(port, "GET", "stream") as answer:
            last = next(at for at, event, _ in events(answer) if event == "history")
        for number in range(3):
            documents.log.append(documents.decision("syncer", "delete", f"host/gone-{number}", "while nobody listened"))
        path, headers = ("stream", {"Last-Event-ID": last}) if way == "header" else (f"stream?after={last}", {})
        missed: list[str] = []
        with answered(port, "GET", path, headers=headers) as answer:
            for _, event, data in events(answer):
                if event in ("history", "decisions"):  # all of them, if the machine stood still for ten seconds
                    missed += [one["key"] for one in json.loads(data) if one["key"].startswith("host/gone-")]
                if len(missed) >= 3:
                    break
        assert missed == [f"host/gone-{number}" for number in range(3)]
