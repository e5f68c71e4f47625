"""Addresses of VIPs on the devices of this machine: read from the kernel, and put there or taken away.

Ours are those with our mark, which the kernel keeps with each address (IFA_PROTO). A kernel before 5.18 keeps none:
there a file in the state folder says which are ours. It is written before an address is added and after it has gone, so
that a crash in between leaves nothing behind that nobody knows. What is not ours is neither seen nor touched.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.balancer.announce.policy import AnnouncedAddress
from holdfast.netlink import ifaddr, links
from holdfast.netlink.addresses import octets, text
from holdfast.netlink.ifaddr import InterfaceAddress
from holdfast.netlink.socket import DumpInterrupted, Netlink, NetlinkError
from holdfast.reconcile import Away, Change, Outcome, Owned
from holdfast.runtime.paths import write_atomically

MARK = 0x48
"""Ours, among the protocols of addresses; the kernel's own are 1 to 3."""
_MARKS_SINCE = (5, 18)

SpotChange = Change[AnnouncedAddress, None]
_NOBODYS: Owned[None] = Owned(None, "", 0)


def keeps_marks(release: str) -> bool:
    """Whether a kernel of that release keeps who put an address there."""
    number = re.match(r"(\d+)\.(\d+)", release)
    return number is not None and (int(number[1]), int(number[2])) >= _MARKS_SINCE


class AddressTarget:
    """The announced addresses of this network namespace. `file` is where they are remembered if the kernel does not."""

    def __init__(self, file: Path, *, marks: bool | None = None) -> None:
        self._file = file
        self._marks = keeps_marks(os.uname().release) if marks is None else marks
        self._kernel: Netlink | None = None
        self.held: frozenset[AnnouncedAddress] = frozenset()
        """What was there of ours at the last look."""

    def close(self) -> None:
        """Lets go of the kernel, not of any address."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    async def read(
        self, after: AnnouncedAddress | None
    ) -> tuple[Sequence[tuple[AnnouncedAddress, Owned[None]]], AnnouncedAddress | None]:
        found = self._ours()
        return [(spot, _NOBODYS) for spot in sorted(found) if after is None or after < spot], None

    async def get(self, keys: Collection[AnnouncedAddress]) -> Mapping[AnnouncedAddress, Owned[None]]:
        return dict.fromkeys(self._ours() & set(keys), _NOBODYS)

    async def apply(self, ready: Sequence[SpotChange]) -> Sequence[Outcome[AnnouncedAddress, None]]:
        kernel = self._open()
        numbers = {name: link.number for name, link in links.dump(kernel).items()}
        foreign = self._there().keys() - self._ours()
        return [Outcome(change, self._applied(kernel, change, numbers, foreign)) for change in ready]

    def _applied(
        self, kernel: Netlink, change: SpotChange, numbers: Mapping[str, int], foreign: Collection[AnnouncedAddress]
    ) -> str | None:
        spot = change.key
        if spot.device not in numbers:
            # An address goes with its device: then there is nothing left to take away.
            return f"there is no device {spot.device}: make it, or change announce.device" if change.new else None
        if spot in foreign:  # never remembered as ours, not even for the moment of trying
            return _refused(spot, errno.EEXIST, "") if change.new else None
        held = InterfaceAddress(numbers[spot.device], octets(spot.host), 32 if spot.family == 4 else 128, self._mark)
        try:
            if change.new is not None:
                self._remember(spot)
                ifaddr.add(kernel, held)
            else:
                ifaddr.remove(kernel, held)
                self._forget(spot)
        except NetlinkError as refusal:
            return _refused(spot, refusal.errno, refusal.strerror)
        return None

    def _there(self) -> dict[AnnouncedAddress, int]:
        """Every address that could be a VIP's, with its mark."""
        kernel = self._open()
        try:
            names = {link.number: name for name, link in links.dump(kernel).items()}
            there = ifaddr.dump(kernel)
        except (DumpInterrupted, OSError) as error:
            raise Away("kernel", str(error)) from error
        whole = [one for one in there if one.link in names and one.length == 8 * len(one.address)]
        return {AnnouncedAddress.of(text(one.address), names[one.link]): one.protocol for one in whole}

    def _ours(self) -> frozenset[AnnouncedAddress]:
        there = self._there()
        if self._marks:
            self.held = frozenset(spot for spot, mark in there.items() if mark == MARK)
        else:
            self.held = self._remembered() & there.keys()
        return self.held

    @property
    def _mark(self) -> int:
        return MARK if self._marks else 0

    def _open(self) -> Netlink:
        if self._kernel is None:
            try:
                self._kernel = Netlink(socket.NETLINK_ROUTE)
            except OSError as error:
                raise Away("kernel", f"no netlink socket ({error.strerror})") from error
        return self._kernel

    def _remembered(self) -> frozenset[AnnouncedAddress]:
        try:
            return frozenset(
                AnnouncedAddress(*one)
                for one in msgspec.json.decode(self._file.read_bytes(), type=list[AnnouncedAddress])
            )
        except FileNotFoundError:
            return frozenset()
        except (OSError, msgspec.MsgspecError) as error:
            raise Away("state folder", f"{self._file}: {error}; delete it, and what it announced is yours") from error

    def _remember(self, spot: AnnouncedAddress) -> None:
        if not self._marks:
            self._keep(self._remembered() | {spot})

    def _forget(self, spot: AnnouncedAddress) -> None:
        if not self._marks:
            self._keep(self._remembered() - {spot})

    def _keep(self, spots: frozenset[AnnouncedAddress]) -> None:
        try:
            write_atomically(self._file, msgspec.json.encode(sorted(spots)))
        except OSError as error:
            raise Away("state folder", f"{self._file} cannot be written ({error.strerror})") from error


def _refused(spot: AnnouncedAddress, number: int | None, words: str | None) -> str:
    match number:
        case errno.EEXIST:
            return f"{spot} is there already, and not by us: take it away, or take announce out of the frontend"
        case errno.EPERM:
            return "it is not permitted: give CAP_NET_ADMIN"
    return f"the kernel refuses: {words}"
