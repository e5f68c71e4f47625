"""Forwarding of single devices: workloads' interfaces, tunnels and uplinks.

A host does not become a router as a whole. IPv4 has a setting per device; IPv6 has one (`force_forwarding`) since Linux
6.17. An older kernel forwards IPv6 on all devices or on none, and where it does, it deletes default routes that it
learned from router advertisements, unless it is told to accept these although it forwards (`accept_ra=2`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Mapping

import structlog

from holdfast.netlink import sysctls
from holdfast.netlink.sysctls import Sysctls

log = structlog.get_logger(__name__)

_ALL_6 = "ipv6/conf/all/forwarding"


class Forwarding:
    """Sets what a device lacks, and remembers what this process may not set."""

    def __init__(self, settings: Sysctls, advertised: Callable[[], Collection[str]]) -> None:
        """`advertised` gives the devices with a default route from a router advertisement."""
        self._sysctls = settings
        self._advertised = advertised
        self._known: dict[tuple[int, str], bool] = {}
        self._relied: set[tuple[int, str]] = set()
        """Devices through which objects of ours lead, with their family."""
        self._refused: set[str] = set()
        """Devices for which it was refused, so that only one attempt is made."""

    def forget(self) -> None:
        """Read the settings again when asked next."""
        self._known.clear()

    def is_on(self, family: int, device: str) -> bool:
        """Return whether packets that arrive by that device are forwarded, or cannot be made to be."""
        place = family, device
        self._relied.add(place)
        if device not in self._refused and place not in self._known:
            wanted = forwarding_knobs(self._sysctls, family, device)
            self._known[place] = self._sysctls.read(wanted) == wanted
        return self._known.get(place, True)

    def was_switched_off(self, family: int, device: str) -> bool:
        """Return whether a device through which objects of ours lead does not forward any more."""
        return (family, device) in self._relied and not self.is_on(family, device)

    def switch_on(self, family: int, device: str) -> None:
        """Have packets that arrive by that device forwarded. Where that is refused the device is used all the same: the
        host's own packets need no forwarding."""
        refusal = None if self.is_on(family, device) else self.set(forwarding_knobs(self._sysctls, family, device))
        self._known.clear()
        if refusal is not None:
            self._refused.add(device)
            log.warning("cannot have a device forward; no workload is reached through it", device=device, error=refusal)

    def set(self, wanted: Mapping[str, int]) -> str | None:
        """Set the knobs that have another value; return None, or why that is refused."""
        there = self._sysctls.read(wanted)
        missing = {knob: value for knob, value in wanted.items() if there.get(knob) != value}
        if _ALL_6 in missing:
            missing = {**{f"ipv6/conf/{device}/accept_ra": 2 for device in self._advertised()}, **missing}
        for knob, value in missing.items():
            try:
                self._sysctls.write({knob: value})
            except OSError as error:
                return refusal_of(knob, value, error)
        return None


def forwarding_knobs(settings: Sysctls, family: int, device: str) -> dict[str, int]:
    """Knobs that let packets through that arrive by that device, in the order in which they are to be set."""
    if family == 4:
        return {f"ipv4/conf/{device}/forwarding": 1}
    if has_force_forwarding(settings):
        return {f"ipv6/conf/{device}/force_forwarding": 1}
    return {_ALL_6: 1}


def has_force_forwarding(settings: Sysctls) -> bool:
    return bool(settings.read(["ipv6/conf/lo/force_forwarding"]))


def refusal_of(knob: str, value: int, error: OSError) -> str:
    shown = f"{sysctls.name(knob)}={value}"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"may not set {shown} ({error.strerror}): allow it in the agent's systemd unit, or set it by hand"
    return f"cannot set {shown}: {error.strerror}"
