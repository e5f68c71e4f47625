"""A target with its schedule, one running probe of it, and the transport that carries probes."""

from __future__ import annotations

import ipaddress
import re
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from holdfast.balancer.probing import checks
from holdfast.balancer.probing.checks import Carrier, Conversation, ProbeVerdict, UncheckableTarget
from holdfast.balancer.probing.files import PROBE_FILES
from holdfast.balancer.probing.messages import ProbeCode, ProbeInterval, TargetSpec
from holdfast.balancer.probing.schedule import interval, tolerance
from holdfast.config.schema.scalars import within
from holdfast.model.base.time import nanoseconds


class Transport(Protocol):
    """Carries probes to their targets."""

    def launch(self, probe: Probe) -> None:
        """Start a probe. One that cannot start has ended when this returns."""
        ...

    def abandon(self, probe: Probe) -> None:
        """End a probe without a verdict."""
        ...


class ProbeTarget:
    """One target: how to probe it, prepared once from its settings, and when. Times are nanoseconds since boot."""

    __slots__ = (
        "_networks",
        "converse",
        "due",
        "endpoint",
        "every",
        "family",
        "id",
        "jitter",
        "last",
        "normal",
        "passing",
        "probe",
        "slot",
        "source",
        "spec",
        "timeout",
        "tolerance",
        "took",
        "transport",
        "unusable",
    )

    def __init__(
        self,
        spec: TargetSpec,
        chosen: ProbeInterval,
        transports: Mapping[Carrier, Transport],
        networks: Sequence[str] = (),
    ) -> None:
        self.spec = spec
        self._networks = networks
        self.id = spec.id
        self.source = spec.check.source or ""
        self.jitter = spec.check.jitter / 100
        self.unusable = ""
        self.transport = transports[Carrier.STREAM]
        self.converse: Callable[[], Conversation] = _uncheckable
        self.endpoint: tuple[str, int] = (spec.address, spec.port)
        self.family = int(socket.AF_INET6 if ":" in spec.address else socket.AF_INET)
        self.timeout = nanoseconds(spec.check.timeout)
        self.tolerance = tolerance(self.timeout)
        self.every = interval(spec.check, chosen)
        self.normal = chosen is ProbeInterval.NORMAL
        self.passing = False
        """The last result was a pass, and was delivered as one."""
        self.slot = self.due = self.last = 0
        self.took: int | None = None
        """Duration of the last probe in nanoseconds, -1 if it did not pass; None before the first."""
        self.probe: Probe | None = None
        self.prepare(transports)

    def prepare(self, transports: Mapping[Carrier, Transport]) -> bool:
        """Prepare probes of this target. Returns False if it cannot be checked, for now: a file may be missing."""
        try:
            self._prepare(transports)
            self.unusable = ""
        except UncheckableTarget as sentence:
            self.unusable = str(sentence)
        return not self.unusable

    def _prepare(self, transports: Mapping[Carrier, Transport]) -> None:
        check = self.spec.check
        if min(self.timeout, self.every) <= 0:
            raise UncheckableTarget(f"{self.id}: interval and timeout must be above 0")
        _require_address(self.id, self.spec.address)
        if not within(self.spec.address, self._networks):
            raise UncheckableTarget(
                f"{self.id}: {self.spec.address} is in no network of balancer.probe_networks, so it is not probed"
            )
        if self.source and (":" in self.source) != (":" in self.spec.address):
            raise UncheckableTarget(f"{self.id}: source {self.source} and address {self.spec.address} do not match")
        kind = checks.find(self.spec)
        if kind.carrier is not Carrier.ECHO and not 1 <= self.spec.port <= 65_535:
            raise UncheckableTarget(f"{self.id}: a {check.type} check needs a port from 1 to 65535")
        self.transport = transports[kind.carrier]
        self.converse = kind.prepare(self.spec, PROBE_FILES)


class Probe:
    """One running probe. `open`: the connection is established; `unsent`: bytes that it could not take yet."""

    __slots__ = ("awaited", "conversation", "open", "sock", "started", "target", "unsent")

    def __init__(self, target: ProbeTarget, started: int) -> None:
        self.target = target
        self.started = started
        self.conversation = target.converse()
        self.open = False
        self.sock: socket.SocketType | None = None
        self.unsent = b""
        self.awaited = select.EPOLLOUT

    def timed_out(self) -> ProbeVerdict:
        return self.conversation.timed_out() if self.open else ProbeVerdict(False, ProbeCode.L4TOUT)


def _require_address(target: str, address: str) -> None:
    """Refuse names: resolving one would block the prober for seconds."""
    try:
        ipaddress.ip_address(re.sub("%.*", "", address))
    except ValueError as error:
        raise UncheckableTarget(f"{target}: address {address!r} is not an IP address") from error


def _uncheckable() -> Conversation:
    raise AssertionError("a target that cannot be checked is not probed")
