"""Target of the announcer: reads, adds and removes addresses of VIPs on the devices of this machine.

Our addresses carry our mark, which the kernel keeps with each address (IFA_PROTO). A kernel before 5.18 keeps no mark:
there a file in the state folder lists our addresses. It is written before an address is added and after it is removed,
so that a crash in between leaves no unknown address behind. Addresses of others are neither shown nor touched.
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
"""Our protocol number for addresses; the kernel uses 1 to 3."""
_MARKS_SINCE = (5, 18)

AddressChange = Change[AnnouncedAddress, None]
_UNOWNED: Owned[None] = Owned(None, "", 0)


def keeps_marks(release: str) -> bool:
    """Tell whether a kernel of this release keeps the protocol of an address."""
    number = re.match(r"(\d+)\.(\d+)", release)
    return number is not None and (int(number[1]), int(number[2])) >= _MARKS_SINCE


class AddressTarget:
    """Announced addresses in this network namespace. `file` lists them if the kernel keeps no marks."""

    def __init__(self, file: Path, *, marks: bool | None = None) -> None:
        self._file = file
        self._marks = keeps_marks(os.uname().release) if marks is None else marks
        self._kernel: Netlink | None = None
        self.held: frozenset[AnnouncedAddress] = frozenset()
        """Our addresses as of the last read."""

    def close(self) -> None:
        """Close the netlink socket; the addresses stay."""
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    async def read(
        self, after: AnnouncedAddress | None
    ) -> tuple[Sequence[tuple[AnnouncedAddress, Owned[None]]], AnnouncedAddress | None]:
        found = self._ours()
        return [(address, _UNOWNED) for address in sorted(found) if after is None or after < address], None

    async def get(self, keys: Collection[AnnouncedAddress]) -> Mapping[AnnouncedAddress, Owned[None]]:
        return dict.fromkeys(self._ours() & set(keys), _UNOWNED)

    async def apply(self, ready: Sequence[AddressChange]) -> Sequence[Outcome[AnnouncedAddress, None]]:
        kernel = self._open()
        numbers = {name: link.number for name, link in links.dump(kernel).items()}
        foreign = self._all().keys() - self._ours()
        return [Outcome(change, self._applied(kernel, change, numbers, foreign)) for change in ready]

    def _applied(
        self, kernel: Netlink, change: AddressChange, numbers: Mapping[str, int], foreign: Collection[AnnouncedAddress]
    ) -> str | None:
        address = change.key
        if address.device not in numbers:
            # The kernel removes an address with its device: nothing is left to withdraw.
            return f"there is no device {address.device}: create it, or change announce.device" if change.new else None
        if address in foreign:  # never listed as ours, not even while trying
            return _refused(address, errno.EEXIST, "") if change.new else None
        held = InterfaceAddress(
            numbers[address.device], octets(address.host), 32 if address.family == 4 else 128, self._mark
        )
        try:
            if change.new is not None:
                self._add_to_list(address)
                ifaddr.add(kernel, held)
            else:
                ifaddr.remove(kernel, held)
                self._remove_from_list(address)
        except NetlinkError as refusal:
            return _refused(address, refusal.errno, refusal.strerror)
        return None

    def _all(self) -> dict[AnnouncedAddress, int]:
        """Every host address with its mark."""
        kernel = self._open()
        try:
            names = {link.number: name for name, link in links.dump(kernel).items()}
            there = ifaddr.dump(kernel)
        except (DumpInterrupted, OSError) as error:
            raise Away("kernel", str(error)) from error
        whole = [one for one in there if one.link in names and one.length == 8 * len(one.address)]
        return {AnnouncedAddress.of(text(one.address), names[one.link]): one.protocol for one in whole}

    def _ours(self) -> frozenset[AnnouncedAddress]:
        there = self._all()
        if self._marks:
            self.held = frozenset(address for address, mark in there.items() if mark == MARK)
        else:
            self.held = self._listed() & there.keys()
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

    def _listed(self) -> frozenset[AnnouncedAddress]:
        try:
            return frozenset(
                AnnouncedAddress(*one)
                for one in msgspec.json.decode(self._file.read_bytes(), type=list[AnnouncedAddress])
            )
        except FileNotFoundError:
            return frozenset()
        except (OSError, msgspec.MsgspecError) as error:
            raise Away(
                "state folder", f"{self._file}: {error}; delete it, and remove by hand what it announced"
            ) from error

    def _add_to_list(self, address: AnnouncedAddress) -> None:
        if not self._marks:
            self._write_list(self._listed() | {address})

    def _remove_from_list(self, address: AnnouncedAddress) -> None:
        if not self._marks:
            self._write_list(self._listed() - {address})

    def _write_list(self, addresses: frozenset[AnnouncedAddress]) -> None:
        try:
            write_atomically(self._file, msgspec.json.encode(sorted(addresses)))
        except OSError as error:
            raise Away("state folder", f"cannot write {self._file} ({error.strerror})") from error


def _refused(address: AnnouncedAddress, number: int | None, words: str | None) -> str:
    match number:
        case errno.EEXIST:
            return f"{address} exists already and is not ours: remove it, or remove announce from the frontend"
        case errno.EPERM:
            return "not permitted: give CAP_NET_ADMIN to the announcer"
    return f"the kernel refused it: {words}"
