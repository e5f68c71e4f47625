"""Access to the API, by where it listens.

On a loopback address everybody on the machine may read. A web page that resolves its own name to 127.0.0.1 sends that
name as Host, and a page of another origin sends its own as Origin: both are refused.

On any other address there is TLS, and every request needs a token. A Host header proves nothing there, because the
machine has many names; a page that resolves its own name to this machine fails at the certificate, and has no cookie
for that name. Only signing in and the files of the page, which hold no data, are open. An Origin must be the address
that was asked in both cases where something changes, and off loopback always, so that no other page uses the cookie.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from litestar import Request
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, Scope, Send

from holdfast.api.sessions import AnyRequest, Sessions
from holdfast.runtime.http import names_loopback

SIGN_IN = "/api/v1/session"


class ApiAccess(NamedTuple):
    """Way to the API: `is_remote` from other machines, `has_tls` over TLS."""

    is_remote: bool = False
    has_tls: bool = False


ON_LOOPBACK = ApiAccess()


class SameMachine(ASGIMiddleware):
    """Refuses requests that name another machine."""

    scopes = (ScopeType.HTTP,)

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        headers = Request(scope).headers
        host, origin = headers.get("host", ""), headers.get("origin")
        is_ours = names_loopback(host) and (origin is None or names_loopback(_netloc(origin)))
        if scope.get("method") not in ("GET", "HEAD"):  # the cookie of another port of this machine
            is_ours = is_ours and origin in (None, f"{scope['scheme']}://{host}")
        if not is_ours:
            raise HTTPException(
                status_code=403, detail="Host or Origin does not name this machine: use the address of the API"
            )
        await next_app(scope, receive, send)


class TokenRequired(ASGIMiddleware):
    """Refuses requests without a token, and those of pages that came from elsewhere."""

    scopes = (ScopeType.HTTP,)

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        request: AnyRequest = Request(scope)
        origin = request.headers.get("origin")
        if origin not in (None, f"https://{request.headers.get('host', '')}"):
            raise HTTPException(status_code=403, detail="Origin is not the address of the API: open its own page")
        if not _is_open(str(scope.get("method")), scope["path"]):
            self._sessions.require_token(request)
        await next_app(scope, receive, send)


def _is_open(method: str, path: str) -> bool:
    if method == "POST":
        return path == SIGN_IN
    return method in ("GET", "HEAD") and (path == "/" or path.startswith("/dashboard/"))


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""
