"""tcp: passes when the connection opens; nothing is sent, and the connection is reset at once."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.balancer.probing.checks import Carrier, CheckFiles, CheckType, Conversation, ProbeVerdict
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec

_OPEN = ProbeVerdict(True, ProbeCode.L4OK)


class TcpConversation:
    def start(self) -> ProbeVerdict:
        return _OPEN

    def feed(self, _data: bytes) -> ProbeVerdict:
        return _OPEN

    def timed_out(self) -> ProbeVerdict:
        return ProbeVerdict(False, ProbeCode.L4TOUT)


def prepare(_target: TargetSpec, _files: CheckFiles) -> Callable[[], Conversation]:
    conversation = TcpConversation()  # stateless, so one serves all probes
    return lambda: conversation


CHECK = CheckType(Carrier.STREAM, prepare)
