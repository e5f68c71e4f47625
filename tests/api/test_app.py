"""The API on a real daemon: the documents of the commands, problem+json, and no answer to rebound names."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.testing.real.processes import tool, wait_until


class Api:
    """A server with an API, and without a store."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.runtime = folder / "run"
        settings = {
            "paths.runtime": self.runtime,
            "paths.state": folder / "state",
            "http.address": "127.0.0.1:0",
            "http.api": f"127.0.0.1:{self.port}",
            "store.endpoints": "http://127.0.0.1:9",
        }
        command = [tool("setpriv"), "--pdeathsig", "KILL", "--", sys.executable, "-m", "holdfast.cli", "server"]
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *(f"--set={name}={value}" for name, value in settings.items())], stdout=log, stderr=log
            )

    def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read()
        finally:
            connection.close()

    def answers(self) -> bool:
        try:
            return self.get("/healthz")[0] == 200
        except OSError:
            return False

    def printed(self, *arguments: str) -> Any:
        result = CliRunner().invoke(main, [*arguments, "-o", "json", "--runtime", str(self.runtime)])
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    one = Api(tmp_path_factory.mktemp("api"))
    try:
        wait_until(one.answers, "the API to answer", within=60)
        yield one
    finally:
        one.process.terminate()
        one.process.wait(30)


def test_status_is_the_document_of_the_command(api: Api) -> None:
    status, kind, body = api.get("/api/v1/status")
    assert (status, kind) == (200, "application/json")
    served, printed = json.loads(body), api.printed("status")
    assert served.keys() == printed.keys()
    workers = [worker["name"] for worker in served["daemons"][0]["workers"]]
    assert workers == [worker["name"] for worker in printed["daemons"][0]["workers"]]
    assert workers[-1] == "api"


def test_explain_is_the_document_of_the_command(api: Api) -> None:
    name = json.loads(api.get("/api/v1/status")[2])["servers"][0]["name"]
    status, _, body = api.get(f"/api/v1/explain/server/{name}")
    assert status == 200
    assert json.loads(body).keys() == api.printed("explain", "server", name).keys()


def test_history_is_the_document_of_the_command(api: Api) -> None:
    status, _, body = api.get("/api/v1/history?last=5")
    assert status == 200
    assert isinstance(json.loads(body), list)


def test_role_checks_tell_a_server_that_does_not_lead(api: Api) -> None:
    assert [api.get(path)[0] for path in ("/leader", "/follower", "/readyz")] == [503, 200, 503]


def test_metrics_are_those_of_the_daemon(api: Api) -> None:
    status, kind, body = api.get("/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    assert b'holdfast_worker_up{worker="api"}' in body


def test_the_openapi_document_names_every_endpoint(api: Api) -> None:
    status, _, body = api.get("/api/v1/openapi.json")
    assert status == 200
    assert {"/api/v1/status", "/api/v1/servers", "/api/v1/history", "/metrics"} <= json.loads(body)["paths"].keys()


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/api/v1/explain/server/nobody", "GET", {}, 404),
        ("/api/v1/explain/rubbish/x", "GET", {}, 404),
        ("/api/v1/history?last=many", "GET", {}, 400),
        ("/api/v1/history?last=0", "GET", {}, 400),
        ("/else", "GET", {}, 404),
        ("/api/v1/status", "POST", {}, 405),
        ("/api/v1/servers", "GET", {}, 503),
        ("/api/v1/status", "GET", {"Host": "evil.example"}, 403),
        ("/api/v1/status", "GET", {"Origin": "http://evil.example"}, 403),
        ("/api/v1/status", "GET", {"Origin": "null"}, 403),
    ],
)
def test_errors_are_problem_json(api: Api, path: str, method: str, headers: dict[str, str], status: int) -> None:
    answered, kind, body = api.get(path, method, **headers)
    assert (answered, kind) == (status, "application/problem+json")
    assert json.loads(body)["status"] == status
    assert b"Traceback" not in body


def test_only_a_loopback_address_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text("http:\n  api: 0.0.0.0:9620\n")
    result = CliRunner().invoke(main, ["config", "check", str(file)])
    assert result.exit_code != 0
    assert "no loopback address" in result.output
