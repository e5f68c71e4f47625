"""The API on a real daemon: the documents of the commands, problem+json, and no answer to rebound names."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.api.daemon import ApiDaemon


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiDaemon]:
    with ApiDaemon(tmp_path_factory.mktemp("api")) as one:
        yield one


def test_status_is_the_document_of_the_command(api: ApiDaemon) -> None:
    status, kind, body = api.get("/api/v1/status")
    assert (status, kind) == (200, "application/json")
    served, printed = json.loads(body), api.printed("status")
    assert served.keys() == printed.keys()
    workers = [worker["name"] for worker in served["daemons"][0]["workers"]]
    assert workers == [worker["name"] for worker in printed["daemons"][0]["workers"]]
    assert workers[-1] == "api"


def test_explain_is_the_document_of_the_command(api: ApiDaemon) -> None:
    name = json.loads(api.get("/api/v1/status")[2])["servers"][0]["name"]
    status, _, body = api.get(f"/api/v1/explain/server/{name}")
    assert status == 200
    assert json.loads(body).keys() == api.printed("explain", "server", name).keys()


def test_history_is_the_document_of_the_command(api: ApiDaemon) -> None:
    status, _, body = api.get("/api/v1/history?last=5")
    assert status == 200
    assert isinstance(json.loads(body), list)


def test_role_checks_tell_a_server_that_does_not_lead(api: ApiDaemon) -> None:
    assert [api.get(path)[0] for path in ("/leader", "/follower", "/readyz")] == [503, 200, 503]


def test_metrics_are_those_of_the_daemon(api: ApiDaemon) -> None:
    status, kind, body = api.get("/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    assert b'holdfast_worker_up{worker="api"}' in body


def test_the_openapi_document_names_every_endpoint(api: ApiDaemon) -> None:
    status, _, body = api.get("/api/v1/openapi.json")
    assert status == 200
    assert {"/api/v1/status", "/api/v1/servers", "/api/v1/history", "/metrics"} <= json.loads(body)["paths"].keys()


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/api/v1/explain/worker/nobody", "GET", {}, 404),
        ("/api/v1/explain/server/nobody", "GET", {}, 503),  # it may run elsewhere, which only the store knows
        ("/api/v1/explain/rubbish/x", "GET", {}, 404),
        ("/api/v1/history?last=many", "GET", {}, 400),
        ("/api/v1/history?last=0", "GET", {}, 400),
        ("/else", "GET", {}, 404),
        ("/api/v1/status", "POST", {}, 405),
        ("/api/v1/servers", "GET", {}, 503),
        ("/api/v1/fleet", "GET", {}, 503),
        ("/api/v1/status", "GET", {"Host": "evil.example"}, 403),
        ("/api/v1/status", "GET", {"Origin": "http://evil.example"}, 403),
        ("/api/v1/status", "GET", {"Origin": "null"}, 403),
    ],
)
def test_errors_are_problem_json(api: ApiDaemon, path: str, method: str, headers: dict[str, str], status: int) -> None:
    answered, kind, body = api.get(path, method, **headers)
    assert (answered, kind) == (status, "application/problem+json")
    assert json.loads(body)["status"] == status
    assert b"Traceback" not in body
