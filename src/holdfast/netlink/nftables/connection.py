"""Connection to one table of nftables: a netlink socket, and the `nft` tool for structure.

A process without permission gets one sentence at the start. Requests for an object that does not exist return nothing.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess

from holdfast.netlink import wire
from holdfast.netlink.nftables import elements
from holdfast.netlink.nftables.elements import Transaction
from holdfast.netlink.socket import DumpInterrupted, Netlink
from holdfast.runtime.daemon.process import dying_with_us

NETFILTER = 12
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


class NftTable:
    """One table of family inet, in the network namespace in which this object was created."""

    def __init__(self, table: str, way_out: str) -> None:
        """`way_out` tells an operator what to do where nftables cannot be used."""
        self._table = table
        self._tool = shutil.which("nft") or shutil.which("nft", path=_TOOL_PATH)
        if self._tool is None:
            raise NftError(f"the nft tool is not installed: install nftables, or {way_out}")
        self.writes = 0
        """Number of our committed transactions."""
        try:
            self._netlink = Netlink(NETFILTER)
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

    @property
    def port(self) -> int:
        """Port by which the kernel names this connection as the cause of a change."""
        return self._netlink.port

    def generation(self) -> int:
        """Number that changes with every transaction of any program, in any table."""
        for message in self.exchange(wire.request(_GET_GENERATION, 0, _inet())):
            if message.type == _NEW_GENERATION:
                found: int = struct.unpack(">I", wire.attributes(message.body, 4)[_GENERATION_ID])[0]
                return found
            raise_if_refused(message)
        raise NftError("the kernel did not return the generation of its tables: use a kernel with nftables")

    def owner(self) -> str | None:
        """Comment of the table; None when there is no table (protection: B18)."""
        for message in self.exchange(wire.request(_GET_TABLE, 0, _inet() + self._name())):
            if message.type == _NEW_TABLE:
                return elements.comment_in(bytes(wire.attributes(message.body, 4).get(_TABLE_USERDATA, b"")))
            raise_if_refused(message, but=errno.ENOENT)
        return None

    def rules(self) -> dict[str, tuple[str, ...]]:
        """Comments of the rules per chain, in order."""
        found: dict[str, list[str]] = {}
        for datagram in self.dump(wire.request(_GET_RULE, wire.MessageFlag.DUMP, _inet() + self._name())):
            for message in wire.messages(datagram):
                if message.type == _NEW_RULE:
                    parts = wire.attributes(message.body, 4)
                    chain = bytes(parts[_RULE_CHAIN]).rstrip(b"\0").decode(errors="replace")
                    found.setdefault(chain, []).append(elements.comment_in(bytes(parts.get(_RULE_USERDATA, b""))))
        return {chain: tuple(comments) for chain, comments in found.items()}

    def maps(self) -> set[str]:
        """Names of the maps and sets; empty when there is no table."""
        found = set()
        for datagram in self.dump(wire.request(_GET_SET, wire.MessageFlag.DUMP, _inet() + self._name())):
            for message in wire.messages(datagram):
                if message.type == _NEW_SET:
                    found.add(bytes(wire.attributes(message.body, 4)[_SET_NAME]).rstrip(b"\0").decode(errors="replace"))
        return found

    def elements(self, name: str) -> list[bytes]:
        """Elements of a map, as undecoded datagrams."""
        return self.dump(elements.listing(self._table, name))

    def commit(self, transaction: Transaction) -> None:
        """Commit a whole transaction, or raise `NftError`."""
        answers = self.exchange(transaction.packed())
        for message in answers:
            raise_if_refused(message)
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

    def exchange(self, packed: bytes) -> list[wire.Message]:
        """Send requests as they are, and return all answers."""
        try:
            return self._netlink.exchange(packed)
        except OSError as error:
            raise NftError(_sentence(error.errno or 0, error.strerror or "")) from error

    def dump(self, request: bytes) -> list[bytes]:
        """Return all datagrams of a dump; none where the object does not exist."""
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


def raise_if_refused(message: wire.Message, but: int = 0) -> None:
    """Raise `NftError` for a refusal, except for that with the error number `but`."""
    if message.type == wire.NLMSG_ERROR and (number := wire.errno_of(message)) not in (0, but):
        raise NftError(_sentence(number, wire.error_text(message)))


def _sentence(number: int, words: str) -> str:
    if number == errno.EPERM:
        return "nftables needs CAP_NET_ADMIN in this network namespace: run as root, or give that capability"
    return f"the kernel refused it ({errno.errorcode.get(number, number)}: {words or os.strerror(number)})"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
