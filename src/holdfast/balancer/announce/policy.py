"""Announcing: which VIPs have their address on a device of this machine, for a routing daemon to redistribute.

An address goes onto its device once the dataplane holds the VIP and a frontend of it is up. It fails static: only a
frontend that is down, or gone, takes the address away, and only when it has been so for the frontend's delay. Warm-up,
health that nobody knows, a silent prober and a pause leave the address as it was found, and so does the end of any
process. Of several frontends with one address, one that is up is enough.
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
    STILL_SERVED = "its frontend is gone, but the VIP may not be removed from the dataplane yet"


class AnnouncedAddress(NamedTuple):
    """An address on a device. Sorts as people count."""

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
"""How long an outlook counts."""
KINDS: Kinds[AnnouncedAddress] = Kinds(of=lambda _spot: "address")


class FrontendStatus(msgspec.Struct, frozen=True):
    """How one frontend stands that wants its address announced."""

    frontend: str
    address: str
    device: str
    delay: Duration
    state: HealthState
    programmed: bool
    released: bool = True
    """Whether warm-up has let it through."""
    by_operator: bool = False
    """Whether every backend is held by an operator, so that its state follows from no probe."""
    paused: str | None = None
    """Who paused the frontend, and why."""

    @property
    def spot(self) -> AnnouncedAddress:
        return AnnouncedAddress.of(self.address, self.device)


class AnnounceInput(msgspec.Struct, frozen=True):
    """What the keeper of the VIPs tells whoever announces them."""

    started: Instant
    """When the keeper was."""
    stands: tuple[FrontendStatus, ...] = ()
    revision: int | None = None
    """Of the complete configuration; None until there is one."""
    unreadable: tuple[str, ...] = ()
    warming: bool = False
    """Whether what nobody wants has to stay, because of the warm-up."""
    silent: Instant | None = None
    """Since when the prober has said nothing."""
    staying: tuple[str, ...] = ()
    """Addresses of VIPs without a frontend that stay in the dataplane for a reason of its own: the brake, a pause."""


@dataclass(slots=True)
class AnnouncePolicy:
    """What is wanted, and the gate before it, as of the last outlook."""

    outlook: AnnounceInput
    _down: dict[str, Instant] = field(default_factory=dict)
    _delays: dict[AnnouncedAddress, Duration] = field(default_factory=dict)
    _leaving: dict[AnnouncedAddress, Instant] = field(default_factory=dict)
    _at: dict[AnnouncedAddress, list[FrontendStatus]] = field(default_factory=dict)
    _heard: Instant = NEVER

    def hear(self, outlook: AnnounceInput, now: Instant) -> None:
        """Takes an outlook as the truth of now. Whatever lies before a gap in the news may have ended meanwhile."""
        if now - self._heard > STALE_AFTER:
            self._down, self._leaving = {}, {}
        self.outlook, self._heard = outlook, now
        self._at = {}
        for stand in outlook.stands:
            self._at.setdefault(stand.spot, []).append(stand)
        down = {stand.frontend for stand in outlook.stands if stand.state is HealthState.DOWN}
        self._down = {name: self._down.get(name, now) for name in down}
        # The delay of a frontend that is gone is the one that it had.
        self._delays |= {spot: max(each.delay for each in stands) for spot, stands in self._at.items()}
        gone = {spot for spot in self._delays if spot not in self._at and spot.host not in outlook.staying}
        self._leaving = {spot: self._leaving.get(spot, now) for spot in gone}

    def wanted(self) -> Sequence[AnnouncedAddress]:
        """Every address that some frontend which is up wants, in order."""
        return sorted(spot for spot, stands in self._at.items() if any(one.state is HealthState.UP for one in stands))

    def forget(self, held: Iterable[AnnouncedAddress]) -> None:
        """These are all that there are: what is neither there nor named needs no delay any more."""
        known = {*held, *self._at}
        self._delays = {spot: delay for spot, delay in self._delays.items() if spot in known}

    def judge(
        self, change: Change[AnnouncedAddress, None], tally: Mapping[Op, int], have: int, now: Instant
    ) -> Closed | None:
        stands = self._at.get(change.key, [])
        if change.op is not Op.DELETE:
            verdicts = [self._not_yet(stand) for stand in stands if stand.state is HealthState.UP]
            return None if None in verdicts else next(iter(verdicts), None)
        if not stands:
            return self._nobody(change.key, now)
        return next((closed for stand in stands if (closed := self._stays(stand, now)) is not None), None)

    def _not_yet(self, stand: FrontendStatus) -> Closed | None:
        """Why this frontend, which is up, does not bring its address onto the device."""
        closed = self._hands_off(stand)
        if closed is None and not stand.programmed:
            since = self.outlook.started
            closed = Closed("vip", AnnounceReason.NOT_PROGRAMMED, since, "the VIP in the dataplane", stand.frontend)
        return closed

    def _stays(self, stand: FrontendStatus, now: Instant) -> Closed | None:
        """Why this frontend, which is not up, does not take its address away."""
        if stand.state is HealthState.UNKNOWN:
            opens = f"a first result of a backend of {stand.frontend}"
            return Closed("no_health", HealthReason.NO_HEALTH, self.outlook.started, opens, stand.frontend)
        return self._hands_off(stand) or _delayed(stand.frontend, self._down.get(stand.frontend, now), stand.delay, now)

    def _hands_off(self, stand: FrontendStatus) -> Closed | None:
        started = self.outlook.started
        if stand.paused is not None:
            opens = f"holdfast resume frontend {stand.frontend}"
            return Closed("intent", PauseReason.PAUSED, started, opens, stand.paused)
        if not stand.released:
            opens = "a first result for each of its backends, or the end of the start-up window"
            return Closed("warm_up", WarmUpReason.BACKEND_UNKNOWN, started, opens, stand.frontend)
        if self.outlook.silent is not None and not stand.by_operator:
            return Closed("no_prober", HealthReason.NO_PROBER, self.outlook.silent, "the prober's next report")
        return None

    def _nobody(self, spot: AnnouncedAddress, now: Instant) -> Closed | None:
        """Why an address of ours stays although no frontend names it."""
        if self.outlook.warming:
            opens = "the end of the start-up window"
            return Closed("warm_up", WarmUpReason.FULL_SYNC, self.outlook.started, opens)
        if spot.host in self.outlook.staying:
            return Closed("vip", AnnounceReason.STILL_SERVED, self.outlook.started, "holdfast balancer plan tells")
        since, delay = self._leaving.get(spot, NEVER), self._delays.get(spot, Duration(0))
        return _delayed("its frontend is gone", since, delay, now)


def _delayed(whose: str, since: Instant, delay: Duration, now: Instant) -> Closed | None:
    if now - since >= delay:
        return None
    opens = f"the withdraw-delay of {delay.total_seconds():g} s running out"
    return Closed("withdraw_delay", AnnounceReason.DELAY, since, opens, whose)
