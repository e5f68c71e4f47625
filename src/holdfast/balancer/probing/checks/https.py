"""https: the http check inside TLS, which works on bytes and not on a socket, so that no handshake ever blocks.

The requested name (SNI) and the name that the certificate must carry are the same: `sni`, else `host`, else the
address. With `verify` off the name is still requested, and any certificate is accepted. Failures before the first byte
of HTTP are L6, later ones L7 (B20). A backend that asks for a client certificate gets that of `cert-file`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable

from holdfast.balancer.probing.checks import (
    Carrier,
    CheckFiles,
    CheckType,
    Conversation,
    ProbeVerdict,
    UncheckableTarget,
)
from holdfast.balancer.probing.checks.http import Expectation, HttpConversation, expectation
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec

_RECORD = 16 << 10


class HttpsConversation:
    """One TLS connection and the http conversation in it."""

    def __init__(self, context: ssl.SSLContext, name: str, expected: Expectation) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._name = name
        self._http = HttpConversation(expected)
        self._secured = False

    def start(self) -> bytes | ProbeVerdict:
        return self._proceed()

    def feed(self, data: bytes) -> bytes | ProbeVerdict:
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()
        return self._proceed()

    def timed_out(self) -> ProbeVerdict:
        return self._http.timed_out() if self._secured else ProbeVerdict(False, ProbeCode.L6TOUT)

    def _proceed(self) -> bytes | ProbeVerdict:
        try:
            verdict = self._converse() if self._secured else self._handshake()
        except ssl.SSLWantReadError:
            verdict = None
        except ssl.SSLError as error:
            return self._broken(error)
        return verdict or self._outgoing.read()

    def _handshake(self) -> ProbeVerdict | None:
        self._tls.do_handshake()
        self._secured = True
        self._tls.write(self._http.start())
        return self._converse()

    def _converse(self) -> ProbeVerdict | None:
        while True:
            try:
                data = self._tls.read(_RECORD)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                data = b""
            answer = self._http.feed(data)
            if isinstance(answer, ProbeVerdict):
                return answer
            assert data, "an http conversation that is closed has a verdict"

    def _broken(self, error: ssl.SSLError) -> ProbeVerdict:
        if self._secured:
            return ProbeVerdict(False, ProbeCode.L7RSP, f"the TLS connection broke: {error.reason or error}")
        if isinstance(error, ssl.SSLCertVerificationError):
            return ProbeVerdict(
                False, ProbeCode.L6RSP, f"the certificate is refused for {self._name}: {error.verify_message}"
            )
        if isinstance(error, ssl.SSLEOFError):
            return ProbeVerdict(False, ProbeCode.L6RSP, "closed in the middle of the TLS handshake")
        return ProbeVerdict(False, ProbeCode.L6RSP, f"the TLS handshake failed: {error.reason or error}")


def name_of(target: TargetSpec) -> str:
    """The name to request, and to find in the certificate (protection: B20)."""
    host = target.check.host or ""
    if host.startswith("[") or host.count(":") == 1:
        host = re.sub(r":\d*$", "", host).strip("[]")
    return target.check.sni or host or target.address


def prepare(target: TargetSpec, files: CheckFiles) -> Callable[[], Conversation]:
    name = name_of(target)
    expected = expectation(target, files)
    context = files.tls(target)
    try:
        # Fails here, and not at the first probe, when the name is not valid in TLS.
        HttpsConversation(context(), name, expected)
    except ValueError as error:
        raise UncheckableTarget(f"{target.id}: {name!r} is not a valid TLS name: {error}") from error
    return lambda: HttpsConversation(context(), name, expected)


CHECK = CheckType(Carrier.STREAM, prepare)
