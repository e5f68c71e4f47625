"""Endpoints that change something: sign in and out, pause, resume, drain, undrain, and release of a gate.

A release needs `If-Match` with the ETag of the plan that the caller has seen: it releases exactly that plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.exceptions import HTTPException
from litestar.handlers import HTTPRouteHandler
from litestar.params import Body

from holdfast.api import examples
from holdfast.api.documents import Documents, IntentRequest
from holdfast.api.openapi import OfPlan, answers, errors, example
from holdfast.api.sessions import COOKIE, AnyRequest, Sessions

_Short = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class SignIn(msgspec.Struct):
    token: _Short


class IntentBody(msgspec.Struct, forbid_unknown_fields=True):
    """A pause or a drain, or the end of one. To begin one needs a `reason`; `lasting` is a duration such as 30m. Only a
    host is drained."""

    action: Literal["pause", "resume", "drain", "undrain"]
    kind: Literal["fleet", "server", "worker", "host", "frontend", "backend"]
    name: Annotated[str, msgspec.Meta(max_length=256)] = ""
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""
    lasting: Annotated[str, msgspec.Meta(max_length=32)] = ""


class AllowBody(msgspec.Struct, forbid_unknown_fields=True):
    """Gate to release once, such as syncer/brake."""

    gate: _Short
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]


CLOSED_BODIES = (IntentBody, AllowBody)
"""Bodies that refuse unknown fields."""


def change_handlers(documents: Documents, sessions: Sessions, *, has_tls: bool) -> Sequence[HTTPRouteHandler]:
    @get(
        "/api/v1/session",
        summary="Name and role of the caller's token; null without one",
        responses=answers(dict[str, Any], examples.CALLER),
    )
    async def session(request: AnyRequest) -> dict[str, Any]:
        one = sessions.caller(request)
        return {"name": one.name if one else None, "role": one.role.value if one else None}

    @post(
        "/api/v1/session",
        summary="Swap a token for a cookie and the proof that changes need",
        status_code=200,
        responses=answers(dict[str, str], examples.SIGNED_IN, 400, 413),
    )
    async def sign_in(
        request: AnyRequest, data: Annotated[SignIn, Body(examples=example(examples.SIGN_IN))]
    ) -> Response[dict[str, str]]:
        value, proof, one = sessions.sign_in(request, data.token)
        cookie = Cookie(COOKIE, value=value, path="/", httponly=True, secure=has_tls, samesite="strict")
        return Response({"name": one.name, "role": one.role.value, "proof": proof}, cookies=[cookie])

    @delete("/api/v1/session", summary="Sign out", status_code=204, responses=errors())
    async def sign_out(request: AnyRequest) -> None:
        sessions.sign_out(request)

    @get(
        "/api/v1/plan",
        summary="What a gate holds, with the ETag that a release needs",
        responses=answers(dict[str, Any], examples.PLAN, 400, 404, 503),
    )
    async def plan(gate: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]) -> Response[dict[str, Any]]:
        found = await documents.plan(gate)
        return Response(found, headers={"ETag": f'"{found["seal"]}"'})

    @post(
        "/api/v1/intents",
        summary="Pause, resume, drain or undrain; needs an admin token",
        status_code=200,
        responses=answers(dict[str, str], examples.ANSWER, 400, 409, 413, 503),
    )
    async def intent(
        request: AnyRequest, data: Annotated[IntentBody, Body(examples=example(examples.INTENT))]
    ) -> dict[str, str]:
        who = sessions.require_admin(request).name
        asked = IntentRequest(who, data.action, data.kind, data.name, data.reason, data.lasting)
        return {"answer": await documents.change(asked)}

    @post(
        "/api/v1/gates/allow",
        summary="Release once what a gate holds; needs an admin token",
        status_code=200,
        operation_class=OfPlan,
        responses=answers(dict[str, str], examples.ANSWER, 400, 404, 409, 412, 413, 428, 503),
    )
    async def allow(
        request: AnyRequest, data: Annotated[AllowBody, Body(examples=example(examples.ALLOW))]
    ) -> dict[str, str]:
        who = sessions.require_admin(request).name
        seen = request.headers.get("if-match", "").strip().removeprefix('"').removesuffix('"')
        if not seen:
            raise HTTPException(status_code=428, detail="If-Match is missing: get /api/v1/plan, and send its ETag")
        return {"answer": await documents.release(data.gate, who, data.reason, seen)}

    return [session, sign_in, sign_out, plan, intent, allow]
