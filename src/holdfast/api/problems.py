"""Errors of the API as `application/problem+json`: the title, the status, and a sentence for the operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog
from litestar import Request, Response
from litestar.exceptions import HTTPException

from holdfast.api.documents import DocumentError, UnknownState
from holdfast.api.openapi import PROBLEM_TYPE, ProblemDetails
from holdfast.api.tokens import TokensUnreadable

log = structlog.get_logger(__name__)

_TITLES = {404: "not found", 503: "state unknown", 409: "refused", 412: "changed meanwhile"}

_NAMED = 3
"""Fields that an answer names."""
_TEXT = 300
"""Characters about them: a refused body may be all one name."""

AnyRequest = Request[Any, Any, Any]


def no_document(request: AnyRequest, error: DocumentError) -> Response[bytes]:
    return _problem(request, error.status, _TITLES.get(error.status, "refused"), str(error))


def no_tokens(request: AnyRequest, error: TokensUnreadable) -> Response[bytes]:
    return no_document(request, UnknownState(str(error)))


def refused(request: AnyRequest, error: HTTPException) -> Response[bytes]:
    return _problem(request, error.status_code, "request refused", f"{error.detail}{_where(error)}", error.headers)


def _where(error: HTTPException) -> str:
    """Return what is wrong with which field, where Litestar tells it beside the detail."""
    found = error.extra if isinstance(error.extra, list) else []
    told = [": ".join(str(one[name]) for name in ("key", "message") if one.get(name)) for one in found[:_NAMED]]
    return f": {'; '.join(told)}"[:_TEXT] if told else ""


def failed(request: AnyRequest, error: Exception) -> Response[bytes]:
    log.error("request failed", path=request.url.path, exc_info=error)
    return _problem(request, 500, "internal error", "this is a bug: the log of the api worker has the details")


def _problem(
    request: AnyRequest, status: int, title: str, detail: str, headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    body = ProblemDetails(title, status, detail, request.url.path)
    return Response(msgspec.json.encode(body), status_code=status, media_type=PROBLEM_TYPE, headers=headers)
