"""dns: asks for one record over UDP; an answer without an error, with at least one record, passes.

Truncated answers count: that the server knows the name is enough. An answer to another question, or with another
number, is not an answer to this probe and is ignored.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Mapping

from holdfast.balancer.probing.checks import (
    Carrier,
    CheckFiles,
    CheckType,
    Conversation,
    ProbeVerdict,
    UncheckableTarget,
)
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec

_HEADER = struct.Struct(">HHHHHH")
_RECURSION_DESIRED, _RESPONSE, _ERROR = 0x0100, 0x8000, 0x000F
_INTERNET = 1
_WAIT = b""
RECORDS: Mapping[str, int] = {"A": 1, "NS": 2, "SOA": 6, "TXT": 16, "AAAA": 28}
_ERRORS = {1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED"}
_numbers = itertools.count(1)


class DnsConversation:
    """One question and its answer."""

    def __init__(self, question: bytes) -> None:
        self._question = question
        self._number = next(_numbers) & 0xFFFF

    def start(self) -> bytes:
        return _HEADER.pack(self._number, _RECURSION_DESIRED, 1, 0, 0, 0) + self._question

    def feed(self, data: bytes) -> bytes | ProbeVerdict:
        if len(data) < _HEADER.size:
            return _WAIT
        number, flags, _, answers, _, _ = _HEADER.unpack_from(data)
        asked = data[_HEADER.size : _HEADER.size + len(self._question)]
        if number != self._number or not flags & _RESPONSE or asked.lower() != self._question.lower():
            return _WAIT
        error = flags & _ERROR
        if error:
            return ProbeVerdict(False, ProbeCode.L7STS, f"the server answered {_ERRORS.get(error, f'error {error}')}")
        if not answers:
            return ProbeVerdict(False, ProbeCode.L7RSP, "the answer has no record")
        return ProbeVerdict(True, ProbeCode.L7OK)

    def timed_out(self) -> ProbeVerdict:
        return ProbeVerdict(False, ProbeCode.L7TOUT, "no answer")


def question(name: str, record: str) -> bytes:
    """Encode a question. Raises ValueError for a name that DNS cannot have."""
    labels = [label.encode("ascii") for label in name.rstrip(".").split(".") if name.rstrip(".")]
    if any(not 1 <= len(label) <= 63 for label in labels) or sum(len(label) + 1 for label in labels) > 254:
        raise ValueError("a label has 1 to 63 characters, a name at most 253")
    encoded = b"".join(bytes([len(label)]) + label for label in labels)
    return encoded + b"\0" + struct.pack(">HH", RECORDS[record], _INTERNET)


def prepare(target: TargetSpec, _files: CheckFiles) -> Callable[[], Conversation]:
    check = target.check
    try:
        asked = question(check.query, check.record)
    except (ValueError, KeyError) as error:
        raise UncheckableTarget(f"{target.id}: query {check.query!r} is not a DNS name: {error}") from error
    return lambda: DnsConversation(asked)


CHECK = CheckType(Carrier.DATAGRAM, prepare)
