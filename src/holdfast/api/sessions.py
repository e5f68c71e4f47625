"""Callers of the API: a bearer token, or the cookie for which the dashboard has swapped one.

The cookie is HttpOnly and SameSite=Strict, and its session is kept in memory only: it ends with the process, after
twelve hours, or with the token. A browser sends the cookie to every port of the machine: a change needs a second secret
as well, which the page keeps for its own origin and sends as a header. A caller without a valid
token is limited in rate for each address, one with a token for each token: neither uses up what is another's.
"""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from typing import Any, NamedTuple

from litestar import Request
from litestar.exceptions import HTTPException

from holdfast.api.tokens import ApiToken, TokenFile, TokenRole
from holdfast.model.base.time import Duration, Instant
from holdfast.store.boottime import boot_now

COOKIE = "holdfast_session"
PROOF = "Holdfast-Session"
"""Header with the second secret of a session."""
_LASTS = Duration(hours=12)
_MOST_SESSIONS = 100
_MOST_LIMITS = 1_000
_PER_SECOND = 5

AnyRequest = Request[Any, Any, Any]


class RateLimit:
    """Admits a number of events in any second."""

    def __init__(self, most: int = _PER_SECOND) -> None:
        self._recent: deque[Instant] = deque(maxlen=most)

    def take(self, now: Instant) -> bool:
        if len(self._recent) == self._recent.maxlen and now - self._recent[0] < Duration(seconds=1):
            return False
        self._recent.append(now)
        return True


class RateLimits:
    """A limit for each address or token, so that nobody uses up what is another's. The oldest are forgotten."""

    def __init__(self) -> None:
        self._limits: dict[str, RateLimit] = {}

    def of(self, who: str) -> RateLimit:
        found = self._limits.pop(who, None) or RateLimit()
        while len(self._limits) >= _MOST_LIMITS:
            del self._limits[next(iter(self._limits))]
        self._limits[who] = found
        return found


class Session(NamedTuple):
    token_hash: str
    proof: str
    end: Instant


class Sessions:
    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens
        self._sessions: dict[str, Session] = {}
        """By the value of the cookie."""
        self._signing_in, self._changes, self._wrong = RateLimits(), RateLimits(), RateLimits()

    def sign_in(self, request: AnyRequest, secret: str) -> tuple[str, str, ApiToken]:
        """Return the value of the cookie and the proof for a token. Raises an error of HTTP."""
        one = self._tokens.find(secret)
        if one is not None:
            _admit(self._signing_in.of(one.hash).take(boot_now()))
        else:
            self._count_refusal(request)
            raise HTTPException(status_code=401, detail="this token is not known: holdfast token list")
        while len(self._sessions) >= _MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session, proof = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._sessions[session] = Session(one.hash, proof, boot_now() + _LASTS)
        return session, proof, one

    def sign_out(self, request: AnyRequest) -> None:
        self._require_proof(request)
        self._sessions.pop(request.cookies.get(COOKIE, ""), None)

    def caller(self, request: AnyRequest) -> ApiToken | None:
        """Return the token of the caller; None without one, or with one that is not known."""
        if _is_bearer(request):
            return self._tokens.find(request.headers["authorization"].partition(" ")[2].strip())
        session = self._sessions.get(request.cookies.get(COOKIE, ""))
        if session is None or boot_now() >= session.end:
            return None
        return next((one for one in self._tokens.all() if one.hash == session.token_hash), None)

    def is_known(self, request: AnyRequest) -> bool:
        return self.caller(request) is not None

    def require_token(self, request: AnyRequest) -> None:
        """Refuse a caller without a token that is known. Raises an error of HTTP."""
        if self.caller(request) is not None:
            return
        if "authorization" in request.headers or COOKIE in request.cookies:
            self._count_refusal(request)
        fix = "sign in, or send Authorization: Bearer; create a token with holdfast token create NAME --role read"
        raise HTTPException(
            status_code=401, detail=f"every request needs a token: {fix}", headers={"WWW-Authenticate": "Bearer"}
        )

    def require_admin(self, request: AnyRequest) -> ApiToken:
        """Return the token of a caller that may change something. Raises an error of HTTP."""
        one = self.caller(request)
        if one is None:
            self._count_refusal(request)
            fix = "sign in, or send Authorization: Bearer; create a token with holdfast token create NAME --role admin"
            raise HTTPException(status_code=401, detail=f"changes need an admin token: {fix}")
        if one.role is not TokenRole.ADMIN:
            raise HTTPException(status_code=403, detail=f"the token {one.name} may only read")
        if not _is_bearer(request):
            self._require_proof(request)
        _admit(self._changes.of(one.hash).take(boot_now()))
        return one

    def _require_proof(self, request: AnyRequest) -> None:
        session = self._sessions.get(request.cookies.get(COOKIE, ""))
        given = request.headers.get(PROOF, "")
        if session is not None and not hmac.compare_digest(session.proof.encode(), given.encode()):
            raise HTTPException(
                status_code=403, detail=f"the cookie changes nothing without the header {PROOF}: sign in on this page"
            )

    def _count_refusal(self, request: AnyRequest) -> None:
        """Count one more caller without a valid token; raises an error of HTTP if there are too many."""
        address = request.client.host if request.client is not None else ""
        _admit(self._wrong.of(address).take(boot_now()))


def _is_bearer(request: AnyRequest) -> bool:
    return request.headers.get("authorization", "").partition(" ")[0].lower() == "bearer"


def _admit(is_admitted: bool) -> None:
    if not is_admitted:
        raise HTTPException(
            status_code=429, detail="too many requests: try again in a second", headers={"Retry-After": "1"}
        )
