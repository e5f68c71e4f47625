"""The OpenAPI document: every answer and every request has an example, and examples have the fields of real answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from docs.api_reference import openapi
from holdfast.api import examples
from holdfast.api.fleet.view import FleetView
from holdfast.model.base.region import Region
from holdfast.model.control.decision import Decision
from holdfast.testing import FakeStore
from tests.api.daemon import ApiDaemon
from tests.api.sample import SampleDocuments

DOCUMENT = openapi()
OPERATIONS = [(verb, path, it) for path, verbs in DOCUMENT["paths"].items() for verb, it in verbs.items()]
NAMES = [f"{verb} {path}" for verb, path, _ in OPERATIONS]


@pytest.mark.parametrize("operation", [it for *_, it in OPERATIONS], ids=NAMES)
def test_every_answer_has_an_example_and_errors_are_problem_json(operation: dict[str, Any]) -> None:
    for status, answer in operation["responses"].items():
        contents = answer.get("content", {})
        assert contents or status == "204", status
        for kind, content in contents.items():
            assert content["examples"], status
            is_word = kind == "text/plain" and status == "503"
            assert status == "200" or is_word or kind == "application/problem+json", (status, kind)
    for content in operation.get("requestBody", {}).get("content", {}).values():
        assert content["schema"]["examples"]


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [it["operationId"] for *_, it in OPERATIONS]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.islower() for name in names)


def test_the_document_says_how_to_give_a_token() -> None:
    assert DOCUMENT["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert {"token": []} in DOCUMENT["security"]


def test_examples_of_what_needs_no_store_have_the_fields_of_real_answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with ApiDaemon(tmp_path_factory.mktemp("api")) as api:
        status = json.loads(api.get("/api/v1/status")[2])
        explained = json.loads(api.get(f"/api/v1/explain/server/{status['servers'][0]['name']}")[2])
        session = json.loads(api.get("/api/v1/session")[2])
        frontends = json.loads(api.get("/api/v1/frontends")[2])
    assert examples.STATUS.keys() == status.keys()
    assert examples.STATUS["daemons"][0].keys() == status["daemons"][0].keys()
    assert examples.STATUS["daemons"][0]["workers"][0].keys() <= status["daemons"][0]["workers"][0].keys()
    assert examples.STATUS["servers"][0].keys() <= status["servers"][0].keys()
    assert examples.DECISIONS[0].keys() <= set(Decision.__struct_fields__)
    assert {"name", "decisions"} <= examples.EXPLAINED.keys() & explained.keys()
    assert examples.CALLER.keys() == session.keys()
    assert examples.FRONTENDS.keys() == frontends.keys()


def test_examples_of_the_grid_have_the_fields_of_real_answers() -> None:
    view = FleetView(FakeStore().client(), Region())
    assert examples.HOSTS.keys() == view.hosts().keys()
    assert examples.FLEET["totals"].keys() == view.totals().keys()
    assert examples.FLEET.keys() - {"drains"} == asyncio.run(SampleDocuments().fleet()).keys()
    assert examples.HOSTS["letters"].items() <= view.hosts()["letters"].items()


def test_bodies_that_refuse_unknown_fields_say_so() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name in ("IntentBody", "AllowBody"):
        assert schemas[name]["additionalProperties"] is False
        assert schemas[name]["properties"]


def test_a_release_names_the_header_that_it_needs() -> None:
    (header,) = DOCUMENT["paths"]["/api/v1/gates/allow"]["post"]["parameters"]
    assert (header["name"], header["in"]) == ("If-Match", "header")
