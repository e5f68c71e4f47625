"""Connection to nftables and connection tracking: one netlink socket, and the `nft` tool for structure.

A process without permission gets one sentence at the start. Requests for an object that does not exist return nothing.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping, Set

from holdfast.balancer.dataplane.api import Client
from holdfast.balancer.dataplane.nftables import conntrack, elements
from holdfast.balancer.dataplane.nftables.conntrack import Flows
from holdfast.balancer.dataplane.nftables.elements import Transaction
from holdfast.balancer.vip import Vip
from holdfast.netlink import wire
from holdfast.netlink.socket import DumpInterrupted, Netlink
from holdfast.runtime.daemon.process import dying_with_us

_NETFILTER = 12
_TABLES = 10 << 8
_NEW_TABLE, _GET_TABLE, _NEW_RULE, _GET_RULE, _NEW_SET, _GET_SET, _NEW_GENERATION, _GET_GENERATION = (
    _TABLES | number for number in (0, 1, 6, 7, 9, 10, 15, 16)
)
_TABLE_USERDATA = 6
_RULE_CHAIN, _RULE_USERDATA = 2, 7
_SET_NAME = 2
_GENERATION_ID = 1
_TOOL_PATH = "/usr/local/sbin:/usr/sbin:/sbin"
_TOOL_DEADLINE = 60.0


class NftError(Exception):
    """The kernel or the tool refused a request. The message is one sentence."""


class NftConnection:
    """One table of family inet, in the network namespace in which this object was created."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._tool = shutil.which("nft") or shutil.which("nft", path=_TOOL_PATH)
        if self._tool is None:
            raise NftError("the nft tool is not installed: install nftables, or choose another balancer.dataplane")
        self.writes = 0
        """Number of our committed transactions."""
        try:
            self._netlink = Netlink(_NETFILTER)
        except OSError as error:
            raise NftError(
                f"the kernel has no netfilter netlink ({error.strerror}): use a kernel with nftables"
            ) from error
        try:
            self.generation()  # needs the same permission as a write
        except NftError:
            self._netlink.close()
            raise

    def close(self) -> None:
        self._netlink.close()

    def generation(self) -> int:
        """Number that changes with every transaction of any program, in any table."""
        for message in self._exchange(wire.request(_GET_GENERATION, 0, _inet())):
            if message.type == _NEW_GENERATION:
                found: int = struct.unpack(">I", wire.attributes(message.body, 4)[_GENERATION_ID])[0]
                return found
            _raise_if_refused(message)
        raise NftError("the kernel did not return the generation of its tables: use a kernel with nftables")

    def owner(self) -> str | None:
        """Comment of the table; None when there is no table (protection: B18)."""
        for message in self._exchange(wire.request(_GET_TABLE, 0, _inet() + self._name())):
            if message.type == _NEW_TABLE:
                return elements.comment_in(bytes(wire.attributes(message.body, 4).get(_TABLE_USERDATA, b"")))
            _raise_if_refused(message, but=errno.ENOENT)
        return None

    def rules(self) -> dict[str, tuple[str, ...]]:
        """Comments of the rules per chain, in order."""
        found: dict[str, list[str]] = {}
        for datagram in self._dump(wire.request(_GET_RULE, wire.MessageFlag.DUMP, _inet() + self._name())):
            for message in wire.messages(datagram):
                if message.type == _NEW_RULE:
                    parts = wire.attributes(message.body, 4)
                    chain = bytes(parts[_RULE_CHAIN]).rstrip(b"\0").decode(errors="replace")
                    found.setdefault(chain, []).append(elements.comment_in(bytes(parts.get(_RULE_USERDATA, b""))))
        return {chain: tuple(comments) for chain, comments in found.items()}

    def maps(self) -> set[str]:
        """Names of the maps and sets; empty when there is no table."""
        found = set()
        for datagram in self._dump(wire.request(_GET_SET, wire.MessageFlag.DUMP, _inet() + self._name())):
            for message in wire.messages(datagram):
                if message.type == _NEW_SET:
                    found.add(bytes(wire.attributes(message.body, 4)[_SET_NAME]).rstrip(b"\0").decode(errors="replace"))
        return found

    def elements(self, name: str) -> list[bytes]:
        """Elements of a map, as undecoded datagrams."""
        return self._dump(elements.listing(self._table, name))

    def commit(self, transaction: Transaction) -> None:
        """Commit a whole transaction, or raise `NftError`."""
        answers = self._exchange(transaction.packed())
        for message in answers:
            _raise_if_refused(message)
        if not any(message.sequence == transaction.last for message in answers):
            raise NftError("the kernel did not confirm the change")
        self.writes += 1

    def restructure(self, text: str) -> None:
        """Change the structure with the `nft` tool, all or nothing. The tool ends with this process: it might apply a
        truncated text, or a complete one after our successor has read the table."""
        assert self._tool is not None
        command = dying_with_us([self._tool, "-f", "-"])
        try:
            done = subprocess.run(  # noqa: S603 -- our own text, by the path of the tool
                command, input=text, text=True, capture_output=True, timeout=_TOOL_DEADLINE, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NftError(f"cannot run {self._tool}: {error}") from error
        if done.returncode:
            raise NftError(f"{self._tool} refused a change of structure: {_first_line(done.stderr)}")
        self.writes += 1

    def count_flows(self, mark: int | None = None) -> Mapping[int, Flows]:
        """Count the current flows of each of our marks, or of one mark."""
        return conntrack.by_mark(self._dump(conntrack.listing(mark)))

    def end_flows(self, mark: int) -> None:
        for message in self._exchange(conntrack.ending(mark)):
            _raise_if_refused(message, but=errno.ENOENT)

    def end_undispatched_flows(self, vips: Set[Vip]) -> None:
        """End unanswered flows to these VIPs that began before packets were dispatched to them."""
        for request in conntrack.ending_undispatched(self._dump(conntrack.listing(0)), vips):
            for message in self._exchange(request):
                _raise_if_refused(message, but=errno.ENOENT)

    def mark_of_flow(self, vip: Vip, client: Client) -> int | None:
        """Mark of a client's established flow to a VIP; None when there is none."""
        answers = self._exchange(conntrack.finding(vip, client))
        for message in answers:
            _raise_if_refused(message, but=errno.ENOENT)
        return conntrack.mark_in(answers)

    def _exchange(self, packed: bytes) -> list[wire.Message]:
        try:
            return self._netlink.exchange(packed)
        except OSError as error:
            raise NftError(_sentence(error.errno or 0, error.strerror or "")) from error

    def _dump(self, request: bytes) -> list[bytes]:
        try:
            return self._netlink.dump(request)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return []
            raise NftError(_sentence(error.errno or 0, error.strerror or "")) from error
        except DumpInterrupted as error:
            raise NftError(str(error)) from error

    def _name(self) -> bytes:
        return wire.attribute(1, self._table.encode() + b"\0")


def _inet() -> bytes:
    return struct.pack(">BBH", elements.INET, 0, 0)


def _raise_if_refused(message: wire.Message, but: int = 0) -> None:
    if message.type == wire.NLMSG_ERROR and (number := wire.errno_of(message)) not in (0, but):
        raise NftError(_sentence(number, wire.error_text(message)))


def _sentence(number: int, words: str) -> str:
    if number == errno.EPERM:
        return "nftables needs CAP_NET_ADMIN in this network namespace: run as root, or give that capability"
    return f"the kernel refused it ({errno.errorcode.get(number, number)}: {words or os.strerror(number)})"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
