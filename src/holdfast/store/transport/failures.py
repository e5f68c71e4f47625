"""Classify failures of etcd calls and word each one for the operator, with its fix.

Decides, from a connection error or an answer, whether an endpoint is unreachable (another one may serve, or the same
one later) or refuses us for a reason that only an operator can remove. Pure.
"""

from __future__ import annotations

import contextlib
import ssl
from dataclasses import dataclass

import msgspec

from holdfast.store.api import Compacted, LeaseGone, NoSpace, StoreError, TooLarge
from holdfast.store.transport.wire import ErrorBody, StreamErrorBody, VersionReply, decoder

CANCELLED, UNKNOWN, DEADLINE, PERMISSION, EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = (
    1,
    2,
    4,
    7,
    8,
    10,
    13,
    14,
    16,
)
_AWAY_CODES = (CANCELLED, UNKNOWN, DEADLINE, EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE)
_NEVER_PROPOSED = ("no leader", "not leader", "too many requests", "not capable")
_LEARNER = "not supported for learner"
_STALE_TOKEN = ("invalid auth token", "revision of auth store is old", "token is not provided")

_OWN_HANDSHAKE = (
    "connection closed",
    "closed network connection",
    "handshake failed",
    "bad certificate",
    "broken pipe",
    "connection reset",
)
"""Texts of a gateway whose own server refuses it."""

_error = decoder(ErrorBody)
_stream_error = decoder(StreamErrorBody)
_version = decoder(VersionReply)


@dataclass(frozen=True, slots=True)
class Failed:
    """An endpoint could not serve the call. `refused`: it will not until an operator changes something.
    `uncertain`: a write may have been applied all the same."""

    why: str
    refused: bool = False
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class StaleToken:
    """The member does not know our token: fetch a new one and retry."""


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials we present; some refusals can only be classified with them."""

    certificate: bool = False
    user: str = ""


Finding = Failed | StaleToken | StoreError


def connection(url: str, error: BaseException | None, login: Login) -> Failed:
    """Classify a failure to connect."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _verification(url, error)
    if isinstance(error, ssl.SSLError):
        return tls_alert(url, error, login)
    if isinstance(error, TimeoutError):
        return Failed(f"{url} does not answer in time; check that etcd runs there and that no firewall drops the port")
    if isinstance(error, ConnectionResetError | ConnectionAbortedError) and url.startswith("https:"):
        return Failed(f"{url} broke off the TLS handshake; if it does not speak TLS, write http:// in store.endpoints")
    refused = isinstance(error, ConnectionRefusedError)  # asyncio words that as "Connect call failed"
    detail = "connection refused" if refused else getattr(error, "strerror", None) or error or "connection failed"
    return Failed(f"{url} cannot be reached ({detail}); check that etcd listens there")


def tls_alert(url: str, error: ssl.SSLError, login: Login) -> Failed:
    """Classify a TLS error other than a bad server certificate."""
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if "wrong version number" in reason or "record layer failure" in reason:
        return Failed(f"{url} does not speak TLS; write http:// in store.endpoints, or give etcd a certificate", True)
    if "alert" not in reason:
        return Failed(f"{url}: the TLS handshake failed ({reason})")
    if not login.certificate:
        return Failed(f"{url} asks for a client certificate ({reason}); set store.cert_file and store.key_file", True)
    return Failed(
        f"{url} refuses our client certificate ({reason}); "
        "set store.cert_file and store.key_file to one that its --trusted-ca-file has signed for client authentication",
        refused=True,
    )


def _verification(url: str, error: ssl.SSLCertVerificationError) -> Failed:
    text = error.verify_message or str(error)
    if "Hostname mismatch" in text or "IP address mismatch" in text:
        return Failed(
            f"{url}: the server's certificate is for another name ({text}); use that name in store.endpoints",
            refused=True,
        )
    if "expired" in text:
        return Failed(f"{url}: the server's certificate has expired; renew it on that member", refused=True)
    return Failed(
        f"{url}: the server's certificate is not signed by the CA in store.ca_file ({text}); "
        "name the CA that signed it",
        refused=True,
    )


def lost(url: str, why: str, cause: BaseException | None, login: Login) -> Failed:
    """Classify a connection that ended before the answer was complete. The request may have had its effect."""
    if isinstance(cause, ssl.SSLError):
        finding = tls_alert(url, cause, login)
        return Failed(finding.why, finding.refused, uncertain=not finding.refused)
    if "not HTTP" in why:
        return Failed(f"{url} is not etcd: {why}; another server has taken that port", refused=True)
    hint = "; if it speaks TLS, write https:// in store.endpoints" if url.startswith("http:") else ""
    return Failed(f"{url} broke off ({why}){hint}", uncertain=True)


def stale_token(code: int, text: str) -> bool:
    """Return True if the member does not know our token."""
    return code == UNAUTHENTICATED or any(sign in text for sign in _STALE_TOKEN)


def answer(url: str, status: int, body: bytes, login: Login) -> Finding | None:
    """Classify an answer other than 200; None means that only /version can tell (see `not_found`)."""
    said = _said(body)
    if not said.message:
        return _without_message(url, status, body)
    code, text = said.code or said.grpc_code, said.message
    if stale_token(code, text):
        return StaleToken()
    return learner(url, text) or _refusal(url, code, text, login) or _named(text) or _by_code(url, code, text)


def learner(url: str, text: str) -> Failed | None:  # protection: C53
    """Recognise a member that is no voter yet, by its text: its code is Unavailable or FailedPrecondition, depending on
    the version. It refuses before it proposes anything, so no write is uncertain."""
    if _LEARNER not in text:
        return None
    return Failed(f"{url} is a learner and serves no clients; promote it, or remove it from store.endpoints")


def _said(body: bytes) -> ErrorBody:
    """Decode an error; one of a streaming call is nested."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        said = _error.decode(body)
        return said if said.message else _stream_error.decode(body).error
    return ErrorBody()


def _without_message(url: str, status: int, body: bytes) -> Finding | None:
    if status == 404:
        return None
    if b"CommonName of client" in body:
        return Failed(
            f"{url} refuses client certificates with a Common Name while etcd's authentication is on; "
            "issue one without CN and keep store.user and store.password_file",
            refused=True,
        )
    if b"HTTP request to an HTTPS server" in body:
        return Failed(f"{url} speaks TLS only; write https:// in store.endpoints", refused=True)
    if status >= 500:
        return Failed(f"{url} answers with HTTP {status}", uncertain=True)
    return not_etcd(url, status)


def not_etcd(url: str, status: int) -> Failed:
    return Failed(
        f"{url} is not etcd (it answers with HTTP {status}); another server has taken that port", refused=True
    )


def not_found(url: str, version_status: int, version_body: bytes) -> Failed:
    """Classify a 404 on the API by the answer of /version: etcd with its gateway off, or not etcd at all."""
    try:
        version = _version.decode(version_body).etcdserver if version_status == 200 else ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        version = ""
    if not version:
        return not_etcd(url, 404)
    return Failed(
        f"{url} is etcd {version} with its JSON gateway switched off; start it without --enable-grpc-gateway=false",
        refused=True,
    )


def _refusal(url: str, code: int, text: str, login: Login) -> Failed | None:
    if "invalid user ID or password" in text:
        return Failed(
            f"{url} refuses our password; check store.user and the content of store.password_file", refused=True
        )
    denied = code == PERMISSION or "permission denied" in text
    if "user name is empty" in text or (denied and not login.user):
        return Failed(f"{url} has authentication on; set store.user and store.password_file", refused=True)
    if denied:
        return Failed(
            f"{url} denies user {login.user} this key: its role lacks it; holdfast store roles prints what each needs",
            refused=True,
        )
    if login.certificate and code == UNAVAILABLE and any(sign in text for sign in _OWN_HANDSHAKE):
        return Failed(
            f"{url}: the member's gateway cannot log in to its own API ({text}); "
            "under --client-cert-auth its server certificate needs the clientAuth usage too: issue it with both usages",
            refused=True,
        )
    return None


def _named(text: str) -> StoreError | None:
    if "has been compacted" in text:
        return Compacted(0)
    if "future revision" in text:
        return StoreError("the requested revision is ahead of the store's: this store was restored or is another one")
    if "lease not found" in text:
        return LeaseGone("the lease has expired or was revoked")
    if "space exceeded" in text:
        return NoSpace(
            "etcd is out of space, so nothing is written; compact and defragment it, or raise --quota-backend-bytes, "
            "then disarm the NOSPACE alarm"
        )
    if "too large" in text or "larger than max" in text:
        return TooLarge("the value or transaction is above etcd's request limit (--max-request-bytes, 1.5 MiB)")
    if "too many operations" in text:
        return TooLarge("the transaction has more operations than etcd's --max-txn-ops allows (128)")
    return None


def _by_code(url: str, code: int, text: str) -> Finding:
    if code in _AWAY_CODES:
        proposed = not any(sign in text for sign in _NEVER_PROPOSED)
        return Failed(f"{url} cannot serve now ({text})", uncertain=proposed)
    return StoreError(f"etcd refuses the request: {text}")
