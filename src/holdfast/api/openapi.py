"""OpenAPI: the answers of each endpoint with an example, its errors, and who may ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import (
    Components,
    Example,
    OpenAPI,
    OpenAPIType,
    Operation,
    Schema,
    SecurityScheme,
)
from litestar.openapi.spec import Parameter as OpenAPIParameter

from holdfast import __version__
from holdfast.api.sessions import COOKIE

PROBLEM_TYPE = "application/problem+json"
_ANYWHERE = (401, 403, 429)
"""Without a token where one is needed, from a page of elsewhere or a token that may not, and too often."""
_SENTENCES = {
    400: ("request refused", "the query parameter last is less than 1"),
    401: ("request refused", "every request needs a token: sign in, or send Authorization: Bearer"),
    403: ("request refused", "the token bob may only read"),
    404: ("not found", "there is no host r12-99"),
    409: ("refused", "host r12-07 is not drained"),
    412: ("changed meanwhile", "syncer/witness holds others than were shown: look at the plan again"),
    413: ("request refused", "the body is larger than 64 KiB"),
    428: ("request refused", "If-Match is missing: get /api/v1/plan, and send its ETag"),
    429: ("request refused", "too many requests: try again in a second"),
    503: ("state unknown", "the store is unreachable"),
}


@dataclass
class OfPlan(Operation):
    """Operation on a plan that the caller has seen: `If-Match` names it."""

    def __post_init__(self) -> None:
        seen = "ETag of the plan that the caller has seen, from GET /api/v1/plan; 428 without it."
        header = OpenAPIParameter(
            "If-Match", "header", Schema(type=OpenAPIType.STRING, max_length=256), description=seen, required=True
        )
        self.parameters = [*(self.parameters or ()), header]


class ProblemDetails(msgspec.Struct, frozen=True):
    """Error of the API, as RFC 9457 has it: the detail is a sentence for the operator."""

    title: str
    status: int
    detail: str
    instance: str


def answers(kind: Any, example: object, *more: int, media_type: str = "application/json") -> dict[int, ResponseSpec]:
    """Return what an endpoint answers: `kind` with an example, or one of the errors."""
    good = ResponseSpec(
        kind, generate_examples=False, description="Answer", media_type=media_type, examples=[_of(example)]
    )
    return {200: good, **errors(*more)}


def errors(*more: int) -> dict[int, ResponseSpec]:
    return {status: _problem(status) for status in sorted({*_ANYWHERE, *more})}


def roles(yes: str, no: str) -> dict[int, ResponseSpec]:
    """Return what a check for load balancers answers: 200 or 503, each with a word."""
    plain = "text/plain"
    bad = ResponseSpec(
        str, generate_examples=False, description="It is not", media_type=plain, examples=[_of(f"{no}\n")]
    )
    return {**answers(str, f"{yes}\n", media_type=plain), 503: bad}


def example(value: object) -> list[Example]:
    return [_of(value)]


def _of(value: object) -> Example:
    return Example(summary="Example", value=value)


def _problem(status: int) -> ResponseSpec:
    title, detail = _SENTENCES[status]
    shown = _of({"title": title, "status": status, "detail": detail, "instance": "/api/v1/…"})
    return ResponseSpec(
        ProblemDetails,
        generate_examples=False,
        description=title.capitalize(),
        media_type=PROBLEM_TYPE,
        examples=[shown],
    )


def _named(handler: HTTPRouteHandler, _method: object, _path: object) -> str:
    return handler.handler_name


def close_bodies(document: OpenAPI, bodies: Iterable[type[msgspec.Struct]]) -> None:
    """Say of these bodies that they refuse unknown fields, which Litestar leaves out."""
    assert document.components is not None
    for one in bodies:
        schema = document.components.schemas[one.__name__]
        assert isinstance(schema, Schema)
        schema.additional_properties = False


def document_config() -> OpenAPIConfig:
    schemes: Mapping[str, Any] = {
        "token": SecurityScheme(type="http", scheme="bearer", description="A token of holdfast token create."),
        "session": SecurityScheme(
            type="apiKey", name=COOKIE, security_scheme_in="cookie", description="Of POST /api/v1/session."
        ),
    }
    return OpenAPIConfig(
        "Holdfast",
        __version__,
        description="Reading needs no token on a loopback address; anything else does. Changes need an admin token.",
        path="/api/v1",
        components=Components(security_schemes=dict(schemes)),
        security=[{}, {"token": []}, {"session": []}],
        operation_id_creator=_named,
        render_plugins=[JsonRenderPlugin(path="/openapi.json")],
    )
