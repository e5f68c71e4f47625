"""The API off loopback: TLS only, a token for every request, and no use of the cookie by other pages."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from holdfast.api.tokens import TokenFile, TokenRole
from holdfast.cli import main
from holdfast.cli.api import http_server
from holdfast.cli.api.certificate import ApiCertificate
from holdfast.testing.real.processes import wait_until
from tests.api.daemon import ApiDaemon
from tests.api.sample import SampleDocuments, serving
from tests.store.certificates import SERVER, Authority, Pair

READS = (
    "/api/v1/status",
    "/api/v1/stream",
    "/api/v1/openapi.json",
    "/api/v1/session",
    "/metrics",
    "/healthz",
    "/leader",
)
PAUSE = {"action": "pause", "kind": "server", "reason": "new disk"}


class Remote(NamedTuple):
    daemon: ApiDaemon
    read: dict[str, str]
    admin: dict[str, str]


def issued(authority: Authority, name: str) -> Pair:
    pair = authority.issue(name, [SERVER])
    pair.key.chmod(0o600)
    return pair


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=authority.pem)


def created(state: Path, name: str, role: str) -> dict[str, str]:
    made = CliRunner().invoke(main, ["token", "create", name, "--role", role, "--state", str(state)])
    assert made.exit_code == 0, made.output
    return {"Authorization": f"Bearer {made.stdout.strip()}"}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    folder = tmp_path_factory.mktemp("remote")
    authority = Authority(folder)
    pair = issued(authority, "api")
    state = folder / "state"
    state.mkdir(mode=0o700)
    read, admin = created(state, "bob", "read"), created(state, "alice", "admin")
    files = {"http.cert_file": pair.cert, "http.key_file": pair.key}
    daemon = ApiDaemon(folder, host="0.0.0.0", trust=trusting(authority), headers=read, settings=files)
    with daemon:
        yield Remote(daemon, read, admin)


def asked(
    daemon: ApiDaemon, method: str, path: str, headers: dict[str, str], body: object = None
) -> tuple[int, dict[str, Any], http.client.HTTPMessage]:
    connection = daemon.connection()
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"} | headers)
        answer = connection.getresponse()
        data = b"" if answer.getheader("Content-Type", "").startswith("text/") else answer.read()
        return answer.status, json.loads(data or b"{}"), answer.headers
    finally:
        connection.close()


@pytest.mark.parametrize("path", READS)
def test_no_request_is_answered_without_a_token(remote: Remote, path: str) -> None:
    status, problem, headers = asked(remote.daemon, "GET", path, {})
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "holdfast token create" in problem["detail"]


def test_the_page_is_open_because_it_holds_no_data_and_is_where_one_signs_in(remote: Remote) -> None:
    for path in ("/", "/dashboard/page.js"):
        assert asked(remote.daemon, "GET", path, {})[0] == 200


def test_a_read_token_reads_and_changes_nothing_and_an_admin_token_changes(remote: Remote) -> None:
    assert asked(remote.daemon, "GET", "/api/v1/status", remote.read)[0] == 200
    status, problem, _ = asked(remote.daemon, "POST", "/api/v1/intents", remote.read, PAUSE)
    assert (status, problem["detail"]) == (403, "the token bob may only read")
    assert intents(remote) == []
    assert asked(remote.daemon, "POST", "/api/v1/intents", remote.admin, PAUSE)[0] == 200
    wait_until(
        lambda: [(one["who"], one["why"]) for one in intents(remote)] == [("token alice", "new disk")], "the pause"
    )


def intents(remote: Remote) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked(remote.daemon, "GET", "/api/v1/status", remote.read)[1]["intents"]
    return found


def test_plain_http_is_refused(remote: Remote) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", remote.daemon.port, timeout=20)
    connection.request("GET", "/api/v1/status", headers=remote.read)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.getresponse()
    connection.close()


def test_guesses_are_limited_in_rate_and_only_for_the_address_that_guesses(remote: Remote) -> None:
    guessing, statuses = remote.daemon.connection("127.0.0.2"), []
    for number in range(60):
        guessing.request("GET", "/api/v1/status", headers={"Authorization": f"Bearer holdfast_{number}"})
        answer = guessing.getresponse()
        answer.read()
        statuses.append(answer.status)
    guessing.close()
    assert set(statuses) == {401, 429}
    assert statuses[:5] == [401] * 5
    assert asked(remote.daemon, "GET", "/api/v1/status", remote.read)[0] == 200


def test_the_cookie_goes_over_tls_only_and_no_other_page_can_use_it(remote: Remote) -> None:
    token = remote.admin["Authorization"].partition(" ")[2]
    status, _, headers = asked(remote.daemon, "POST", "/api/v1/session", {}, {"token": token})
    assert status == 200
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(headers["Set-Cookie"].split("; "))
    cookie = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
    assert asked(remote.daemon, "GET", "/api/v1/status", cookie)[0] == 200
    own = f"https://127.0.0.1:{remote.daemon.port}"
    assert asked(remote.daemon, "GET", "/api/v1/status", cookie | {"Origin": own})[0] == 200
    for origin in ("https://evil.example", f"http://127.0.0.1:{remote.daemon.port}", "https://127.0.0.1:1", "null"):
        assert asked(remote.daemon, "GET", "/api/v1/status", cookie | {"Origin": origin})[0] == 403
        assert asked(remote.daemon, "POST", "/api/v1/intents", cookie | {"Origin": origin}, PAUSE)[0] == 403


def test_a_name_that_was_rebound_to_this_machine_gets_nothing_without_a_token(remote: Remote) -> None:
    rebound = {"Host": "evil.example", "Origin": "https://evil.example"}
    assert asked(remote.daemon, "GET", "/api/v1/status", rebound)[0] == 401


def test_a_new_connection_gets_the_new_certificate_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    used, other = issued(authority, "used"), issued(authority, "other")
    expected = ssl.PEM_cert_to_DER_cert(other.cert.read_text())

    def presented() -> bytes | None:
        plain = socket.create_connection(("127.0.0.1", port), 20)
        with trusting(authority).wrap_socket(plain, server_hostname="127.0.0.1") as secured:
            return secured.getpeercert(binary_form=True)

    with serving(SampleDocuments(), certificate=ApiCertificate(str(used.cert), str(used.key))) as port:
        assert presented() == ssl.PEM_cert_to_DER_cert(used.cert.read_text())
        shutil.copy(other.cert, used.cert)  # its key is still the old one
        assert presented() != expected
        shutil.copy(other.key, used.key)
        assert presented() == expected
        used.cert.write_text("rubbish")
        assert presented() == expected


def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    authority, tokens = Authority(tmp_path), TokenFile(tmp_path / "tokens.json")
    pair, secret = issued(authority, "api"), tokens.create("bob", TokenRole.READ)
    with serving(SampleDocuments(), tokens=tokens, certificate=ApiCertificate(str(pair.cert), str(pair.key))) as port:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=trusting(authority))
        connection.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {secret}"})
        answer = connection.getresponse()
        assert answer.readline() == b"retry: 1000\n"
        tokens.revoke("bob")
        assert b"" in [answer.readline() for _ in range(60)], "the stream goes on"
        connection.close()


def test_a_client_that_sends_no_whole_request_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_WITHIN_S", 0.2)
    with serving(SampleDocuments()) as port:
        for sent in (
            b"",
            b"GET / HT",
            b"POST /api/v1/session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
        ):
            with socket.create_connection(("127.0.0.1", port), 20) as slow:
                slow.sendall(sent)
                assert slow.recv(100) == b""


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([], "set http.cert_file and http.key_file, or write 127.0.0.1:PORT"),
        (["cert_file: {cert}"], "needs http.key_file as well"),
        (["cert_file: {cert}", "key_file: {open}"], "run chmod o="),
        (["cert_file: {cert}", "key_file: {other}"], "cannot be used"),
        (["cert_file: {cert}", "key_file: {key}"], "run holdfast token create NAME --role read --state"),
    ],
)
def test_what_is_missing_off_loopback_is_refused_by_the_check_and_at_the_start(
    tmp_path: Path, lines: list[str], sentence: str
) -> None:
    authority = Authority(tmp_path)
    pair, other, opened = issued(authority, "api"), issued(authority, "other"), tmp_path / "open.key"
    shutil.copy(pair.key, opened)
    opened.chmod(0o644)
    named = {"cert": pair.cert, "key": pair.key, "other": other.key, "open": opened}
    file = tmp_path / "holdfast.yaml"
    api = "".join(f"  {line}\n" for line in ["api: 0.0.0.0:9620", *lines]).format_map(named)
    paths = f"paths:\n  state: {tmp_path / 'state'}\n  runtime: {tmp_path / 'run'}\n"
    file.write_text(f"http:\n{api}{paths}")
    for command in (["config", "check", str(file)], ["server", "--config", str(file)]):
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 1, result.output
        assert sentence in result.output
    if lines == ["cert_file: {cert}", "key_file: {key}"]:
        created(tmp_path / "state", "bob", "read")
        assert CliRunner().invoke(main, ["config", "check", str(file)]).exit_code == 0
