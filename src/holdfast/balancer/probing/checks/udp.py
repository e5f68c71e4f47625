"""udp: sends one datagram; an answer passes, with `body` only one that matches.

Without an answer nothing is known of a UDP server, so `send` must be something that it answers.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.balancer.probing.checks import (
    Carrier,
    CheckFiles,
    CheckType,
    Conversation,
    ProbeVerdict,
    UncheckableTarget,
)
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec
from holdfast.config.schema.pattern import NotAPattern, Pattern, compile_pattern

_WAIT = b""


class UdpConversation:
    def __init__(self, request: bytes, expected: Pattern | None) -> None:
        self._request = request
        self._expected = expected

    def start(self) -> bytes:
        return self._request

    def feed(self, data: bytes) -> bytes | ProbeVerdict:
        if self._expected is None or self._expected.search(data):
            return ProbeVerdict(True, ProbeCode.L7OK)
        return ProbeVerdict(False, ProbeCode.L7RSP, f"an answer of {len(data):,} bytes does not match")

    def timed_out(self) -> ProbeVerdict:
        return ProbeVerdict(False, ProbeCode.L7TOUT, "no answer")


def prepare(target: TargetSpec, _files: CheckFiles) -> Callable[[], Conversation]:
    check = target.check
    if not check.send:
        raise UncheckableTarget(f"{target.id}: a udp check needs `send`, a text that the server answers")
    try:
        expected = compile_pattern(check.body) if check.body else None
    except NotAPattern as error:
        raise UncheckableTarget(f"{target.id}: body {check.body!r} is not a regular expression: {error}") from error
    conversation = UdpConversation(check.send.encode(), expected)  # stateless, so one serves all probes
    return lambda: conversation


CHECK = CheckType(Carrier.DATAGRAM, prepare)
