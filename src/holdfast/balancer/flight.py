"""A lane is a target on its cadence; a flight is one probe of it under way."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable

from holdfast.balancer import checks
from holdfast.balancer.cadence import interval, tolerance
from holdfast.balancer.checks import Carrier, Conversation, Unusable, Verdict
from holdfast.balancer.results import Code, Pace, Target
from holdfast.model.time import NEVER, Duration, Instant, nanoseconds


class Lane:
    """One target: how to probe it, read once from its settings, and when."""

    __slots__ = (
        "beat",
        "bound",
        "carrier",
        "converse",
        "due",
        "endpoint",
        "every",
        "family",
        "flight",
        "last",
        "target",
        "timeout_ns",
        "unusable",
    )

    def __init__(self, target: Target, pace: Pace) -> None:
        self.target = target
        self.unusable = ""
        self.carrier = Carrier.STREAM
        self.converse: Callable[[], Conversation] = _nothing_to_say
        self.endpoint: tuple[str, int] = (target.address, target.port)
        self.family = socket.AF_INET6 if ":" in target.address else socket.AF_INET
        self.timeout_ns = nanoseconds(target.check.timeout)
        self.bound: Duration = tolerance(target.check.timeout)
        self.every: Duration = interval(target.check, pace)
        self.beat: Instant = NEVER
        self.due: Instant = NEVER
        self.last: Instant = NEVER
        self.flight: Flight | None = None
        try:
            self._prepare()
        except Unusable as sentence:
            self.unusable = str(sentence)

    def _prepare(self) -> None:
        check = self.target.check
        for what, address in (("address", self.target.address), ("source", check.source)):
            if address or what == "address":
                _require_address(self.target.id, what, address)
        if check.source and (":" in check.source) != (":" in self.target.address):
            raise Unusable(f"{self.target.id}: source {check.source} and address {self.target.address} do not match")
        kind = checks.find(self.target)
        if kind.carrier is Carrier.STREAM and not 1 <= self.target.port <= 65_535:
            raise Unusable(f"{self.target.id}: a {check.type} check needs a port from 1 to 65535")
        self.carrier = kind.carrier
        self.converse = kind.prepare(self.target)


class Flight:
    """One probe. `open` tells that the way to the backend is; `unsent` is what the way could not take yet."""

    __slots__ = ("conversation", "lane", "late", "open", "sock", "started", "unsent")

    def __init__(self, lane: Lane, started: Instant) -> None:
        self.lane = lane
        self.started = started
        self.conversation = lane.converse()
        self.open = False
        self.sock: socket.socket | None = None
        self.unsent = b""

    def timed_out(self) -> Verdict:
        return self.conversation.timed_out() if self.open else Verdict(False, Code.L4TOUT)


def _require_address(target: str, what: str, address: str) -> None:
    """A name would be looked up when it is used, which can take seconds: numbers only."""
    try:
        ipaddress.ip_address(re.sub("%.*", "", address))
    except ValueError as error:
        raise Unusable(f"{target}: {what} {address!r} is not an IP address") from error


def _nothing_to_say() -> Conversation:
    raise AssertionError("a target that cannot be checked is not probed")
