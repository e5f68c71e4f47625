"""Announce policy: which VIPs have their address on a device of this machine, for a routing daemon to redistribute.

An address is announced once the dataplane holds the VIP and a frontend with that address is up. It is withdrawn only
when the frontend has been down, or gone, for its withdraw-delay, or with `withdraw-after` when its health could not be
verified for that long. Of several frontends with one address, one that is up is enough. `gates` holds the changes for
which it is too early.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

import msgspec

from holdfast.balancer.health import HealthState
from holdfast.model.base.address import address_order
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.intent import Intent
from holdfast.reconcile import Kinds


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
    withdraw_after: Duration = Duration(0)
    """Time without verified health after which the address is withdrawn; 0: never."""
    unverified_since: Instant | None = None
    """Since when the health of its backends cannot be verified; None while it can."""

    def is_unverified(self, now: Instant) -> bool:
        """Tell whether health could not be verified for `withdraw_after`."""
        if not self.withdraw_after or self.unverified_since is None:
            return False
        return now - self.unverified_since >= self.withdraw_after

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
    pauses: tuple[Intent, ...] = ()
    """Pauses of the fleet."""
    kept_vips: tuple[str, ...] = ()
    """Addresses of VIPs without a frontend that another gate (brake, pause) holds in the dataplane."""


@dataclass(slots=True)
class AnnouncePolicy:
    """Wanted addresses as of the last input, and since when an address is no longer wanted."""

    input: AnnounceInput
    _down: dict[str, Instant] = field(default_factory=dict)
    _delays: dict[AnnouncedAddress, Duration] = field(default_factory=dict)
    _leaving: dict[AnnouncedAddress, Instant] = field(default_factory=dict)
    _at: dict[AnnouncedAddress, list[FrontendStatus]] = field(default_factory=dict)
    _updated: Instant = NEVER

    def update(self, received: AnnounceInput, now: Instant) -> None:
        """Take a new input. After a gap, delays start again: a frontend may have been up in between."""
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
        """Addresses of all frontends that are up, as far as that could be verified, in order."""
        return sorted(
            address for address, statuses in self._at.items() if any(self.is_up(one, self._updated) for one in statuses)
        )

    def is_up(self, status: FrontendStatus, now: Instant) -> bool:
        return status.state is HealthState.UP and not status.is_unverified(now)

    def forget(self, held: Iterable[AnnouncedAddress]) -> None:
        """Drop the delays of addresses that are neither held nor configured."""
        known = {*held, *self._at}
        self._delays = {address: delay for address, delay in self._delays.items() if address in known}

    def statuses(self, address: AnnouncedAddress) -> Sequence[FrontendStatus]:
        """The frontends with this address."""
        return self._at.get(address, ())

    def down_since(self, frontend: str, now: Instant) -> Instant:
        """The time since which the frontend is down; now if it is not."""
        return self._down.get(frontend, now)

    def gone(self, address: AnnouncedAddress) -> tuple[Instant, Duration]:
        """The time since which no frontend has this address, and the longest delay that one had."""
        return self._leaving.get(address, NEVER), self._delays.get(address, Duration(0))
