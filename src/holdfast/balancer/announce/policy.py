"""Announce policy: which VIPs have their address on a device of this machine, for a routing daemon to redistribute.

An address is announced once the dataplane holds the VIP and a frontend with that address is up. It fails static: the
address is withdrawn only when the frontend has been down, or gone, for its withdraw-delay. Warm-up, unknown health, a
silent prober and a pause leave the address as it is, and so does the end of any process. Of several frontends with one
address, one that is up is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import msgspec

from holdfast.balancer.gates import HealthReason
from holdfast.balancer.health import HealthState
from holdfast.balancer.warm_up import WarmUpReason
from holdfast.model.base.address import address_order
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.reconcile import Change, Closed, Kinds, Op, Reason
from holdfast.reconcile.pause import PauseReason


class AnnounceReason(Reason):
    NOT_PROGRAMMED = "the dataplane does not hold its VIP yet"
    DELAY = "it has not been down for its withdraw-delay yet"
    STILL_SERVED = "its frontend is gone, but its VIP is held in the dataplane"


class AnnouncedAddress(NamedTuple):
    """An address on a device. Sorts numerically."""

    family: int
    address: int
    device: str

    @classmethod
    def of(cls, address: str, device: str) -> AnnouncedAddress:
        return cls(*address_order(address), device)

    @property
    def host(self) -> str:
        return str(IPv4Address(self.address) if self.family == 4 else IPv6Address(self.address))

    def __str__(self) -> str:
        return f"{self.host}/{32 if self.family == 4 else 128} dev {self.device}"


STALE_AFTER = Duration(seconds=3)
"""Age after which an `AnnounceInput` is stale."""
VIP_GATE = "vip_programmed"
KINDS: Kinds[AnnouncedAddress] = Kinds(of=lambda _address: "address")


class FrontendStatus(msgspec.Struct, frozen=True):
    """State of one frontend whose address is to be announced."""

    frontend: str
    address: str
    device: str
    delay: Duration
    state: HealthState
    programmed: bool
    released: bool = True
    """True once the warm-up has released the frontend."""
    by_operator: bool = False
    """True if an operator holds every backend, so that the state does not depend on probes."""
    paused: str | None = None
    """Operator who paused the frontend, and the reason."""

    @property
    def announced_address(self) -> AnnouncedAddress:
        return AnnouncedAddress.of(self.address, self.device)


class AnnounceInput(msgspec.Struct, frozen=True):
    """Answer of the VIP reconciler to the announcer."""

    started: Instant
    """Start of the VIP reconciler."""
    frontends: tuple[FrontendStatus, ...] = ()
    revision: int | None = None
    """Revision of the complete configuration; None until there is one."""
    unreadable: tuple[str, ...] = ()
    warming: bool = False
    """True while unwanted addresses have to stay because of the warm-up."""
    prober_silent_since: Instant | None = None
    """Last report of a prober that is silent; None while it reports."""
    kept_vips: tuple[str, ...] = ()
    """Addresses of VIPs without a frontend that another gate (brake, pause) holds in the dataplane."""


@dataclass(slots=True)
class AnnouncePolicy:
    """Wanted addresses and the gate for their changes, as of the last input."""

    input: AnnounceInput
    _down: dict[str, Instant] = field(default_factory=dict)
    _delays: dict[AnnouncedAddress, Duration] = field(default_factory=dict)
    _leaving: dict[AnnouncedAddress, Instant] = field(default_factory=dict)
    _at: dict[AnnouncedAddress, list[FrontendStatus]] = field(default_factory=dict)
    _updated: Instant = NEVER

    def update(self, received: AnnounceInput, now: Instant) -> None:
        """Takes a new input. After a gap, delays start again: a frontend may have been up in between."""
        if now - self._updated > STALE_AFTER:
            self._down, self._leaving = {}, {}
        self.input, self._updated = received, now
        self._at = {}
        for status in received.frontends:
            self._at.setdefault(status.announced_address, []).append(status)
        down = {status.frontend for status in received.frontends if status.state is HealthState.DOWN}
        self._down = {name: self._down.get(name, now) for name in down}
        # A frontend that is gone keeps the delay that it had.
        self._delays |= {address: max(each.delay for each in statuses) for address, statuses in self._at.items()}
        gone = {
            address for address in self._delays if address not in self._at and address.host not in received.kept_vips
        }
        self._leaving = {address: self._leaving.get(address, now) for address in gone}

    def wanted(self) -> Sequence[AnnouncedAddress]:
        """Addresses of all frontends that are up, in order."""
        return sorted(
            address for address, statuses in self._at.items() if any(one.state is HealthState.UP for one in statuses)
        )

    def forget(self, held: Iterable[AnnouncedAddress]) -> None:
        """Drops the delays of addresses that are neither held nor configured."""
        known = {*held, *self._at}
        self._delays = {address: delay for address, delay in self._delays.items() if address in known}

    def judge(
        self, change: Change[AnnouncedAddress, None], tally: Mapping[Op, int], have: int, now: Instant
    ) -> Closed | None:
        statuses = self._at.get(change.key, [])
        if change.op is not Op.DELETE:
            verdicts = [self._not_announced_yet(status) for status in statuses if status.state is HealthState.UP]
            return None if None in verdicts else next(iter(verdicts), None)
        if not statuses:
            return self._unclaimed(change.key, now)
        return next(
            (closed for status in statuses if (closed := self._not_withdrawn_yet(status, now)) is not None), None
        )

    def _not_announced_yet(self, status: FrontendStatus) -> Closed | None:
        """Reason not to announce the address of this frontend, which is up."""
        closed = self._unchanged(status)
        if closed is None and not status.programmed:
            since = self.input.started
            closed = Closed(VIP_GATE, AnnounceReason.NOT_PROGRAMMED, since, "the VIP in the dataplane", status.frontend)
        return closed

    def _not_withdrawn_yet(self, status: FrontendStatus, now: Instant) -> Closed | None:
        """Reason not to withdraw the address of this frontend, which is not up."""
        if status.state is HealthState.UNKNOWN:
            opens = f"a first result of a backend of {status.frontend}"
            return Closed("no_health", HealthReason.NO_HEALTH, self.input.started, opens, status.frontend)
        return self._unchanged(status) or _delayed(
            status.frontend, self._down.get(status.frontend, now), status.delay, now
        )

    def _unchanged(self, status: FrontendStatus) -> Closed | None:
        """Reason to leave the address as it is, whether the frontend is up or down."""
        started = self.input.started
        if status.paused is not None:
            opens = f"holdfast resume frontend {status.frontend}"
            return Closed("intent", PauseReason.PAUSED, started, opens, status.paused)
        if not status.released:
            opens = "a first result for each of its backends, or the end of the start-up window"
            return Closed("warm_up", WarmUpReason.BACKEND_UNKNOWN, started, opens, status.frontend)
        if self.input.prober_silent_since is not None and not status.by_operator:
            return Closed(
                "no_prober", HealthReason.NO_PROBER, self.input.prober_silent_since, "the prober's next report"
            )
        return None

    def _unclaimed(self, address: AnnouncedAddress, now: Instant) -> Closed | None:
        """Reason to keep an announced address that no frontend has any more."""
        if self.input.warming:
            opens = "the end of the start-up window"
            return Closed("warm_up", WarmUpReason.FULL_SYNC, self.input.started, opens)
        if address.host in self.input.kept_vips:
            return Closed(
                VIP_GATE,
                AnnounceReason.STILL_SERVED,
                self.input.started,
                "the release of its VIP: holdfast balancer plan shows the gate",
            )
        since, delay = self._leaving.get(address, NEVER), self._delays.get(address, Duration(0))
        return _delayed("its frontend is gone", since, delay, now)


def _delayed(detail: str, since: Instant, delay: Duration, now: Instant) -> Closed | None:
    if now - since >= delay:
        return None
    opens = f"the end of the withdraw-delay of {delay.total_seconds():g} s"
    return Closed("withdraw_delay", AnnounceReason.DELAY, since, opens, detail)
