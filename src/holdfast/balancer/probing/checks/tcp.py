"""tcp: a connection that opens is all it takes; nothing is sent, and the connection is reset at once."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.balancer.probing.checks import Carrier, CheckType, Conversation, Verdict
from holdfast.balancer.probing.messages import Code, Target

_OPEN = Verdict(True, Code.L4OK)


class Tcp:
    def start(self) -> Verdict:
        return _OPEN

    def feed(self, _data: bytes) -> Verdict:
        return _OPEN

    def timed_out(self) -> Verdict:
        return Verdict(False, Code.L4TOUT)


def prepare(_target: Target) -> Callable[[], Conversation]:
    conversation = Tcp()  # it remembers nothing, so one serves all probes
    return lambda: conversation


CHECK = CheckType(Carrier.STREAM, prepare)
