"""A lane is a target on its cadence; a flight is one probe of it under way."""

from __future__ import annotations

import ipaddress
import re
import select
import socket
from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.balancer.probing import checks
from holdfast.balancer.probing.checks import Carrier, Conversation, ProbeVerdict, UncheckableTarget
from holdfast.balancer.probing.messages import ProbeCode, ProbeInterval, TargetSpec
from holdfast.balancer.probing.schedule import interval, tolerance
from holdfast.model.base.time import nanoseconds


class Transport(Protocol):
    """What carries probes to their targets."""

    def launch(self, flight: Probe) -> None:
        """Sends a probe out. One that cannot even begin has ended when this returns."""
        ...

    def abandon(self, flight: Probe) -> None:
        """Lets go of a probe without a verdict."""
        ...


class ProbeTarget:
    """One target: how to probe it, read once from its settings, and when. Times are nanoseconds of the boot clock."""

    __slots__ = (
        "beat",
        "bound",
        "converse",
        "due",
        "endpoint",
        "every",
        "family",
        "flight",
        "id",
        "jitter",
        "last",
        "source",
        "target",
        "timeout",
        "unusable",
        "way",
    )

    def __init__(self, target: TargetSpec, pace: ProbeInterval, ways: Mapping[Carrier, Transport]) -> None:
        self.target = target
        self.id = target.id
        self.source = target.check.source or ""
        self.jitter = target.check.jitter / 100
        self.unusable = ""
        self.way = ways[Carrier.STREAM]
        self.converse: Callable[[], Conversation] = _nothing_to_say
        self.endpoint: tuple[str, int] = (target.address, target.port)
        self.family = int(socket.AF_INET6 if ":" in target.address else socket.AF_INET)
        self.timeout = nanoseconds(target.check.timeout)
        self.bound = tolerance(self.timeout)
        self.every = interval(target.check, pace)
        self.beat = self.due = self.last = 0
        self.flight: Probe | None = None
        try:
            self._prepare(ways)
        except UncheckableTarget as sentence:
            self.unusable = str(sentence)

    def _prepare(self, ways: Mapping[Carrier, Transport]) -> None:
        check = self.target.check
        if min(self.timeout, self.every) <= 0:
            raise UncheckableTarget(f"{self.id}: interval and timeout must be above 0")
        _require_address(self.id, self.target.address)
        if self.source and (":" in self.source) != (":" in self.target.address):
            raise UncheckableTarget(f"{self.id}: source {self.source} and address {self.target.address} do not match")
        kind = checks.find(self.target)
        if kind.carrier is Carrier.STREAM and not 1 <= self.target.port <= 65_535:
            raise UncheckableTarget(f"{self.id}: a {check.type} check needs a port from 1 to 65535")
        self.way = ways[kind.carrier]
        self.converse = kind.prepare(self.target)


class Probe:
    """One probe. `open` tells that the way to the backend is; `unsent` is what the way could not take yet."""

    __slots__ = ("awaited", "conversation", "lane", "open", "sock", "started", "unsent")

    def __init__(self, lane: ProbeTarget, started: int) -> None:
        self.lane = lane
        self.started = started
        self.conversation = lane.converse()
        self.open = False
        self.sock: socket.SocketType | None = None
        self.unsent = b""
        self.awaited = select.EPOLLOUT

    def timed_out(self) -> ProbeVerdict:
        return self.conversation.timed_out() if self.open else ProbeVerdict(False, ProbeCode.L4TOUT)


def _require_address(target: str, address: str) -> None:
    """A name would be looked up when it is used, which can take seconds: numbers only."""
    try:
        ipaddress.ip_address(re.sub("%.*", "", address))
    except ValueError as error:
        raise UncheckableTarget(f"{target}: address {address!r} is not an IP address") from error


def _nothing_to_say() -> Conversation:
    raise AssertionError("a target that cannot be checked is not probed")
