"""A netlink socket: batches in, refusals out; dumps that are whole or not at all.

`transact` returns when the kernel has gone through the whole batch. No more is sent at once than there is room for
refusals: who may not force its buffers larger, as in a container, sends fewer requests at a time. A dump during which
the kernel's table changed is taken again; `DumpInterrupted` says that it never held still long enough, and nobody
gets a
part of a table for the whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterator, Sequence

from holdfast.netlink import wire
from holdfast.netlink.columns import flags, kind, runs
from holdfast.netlink.wire import Batch, Message, MessageFlag, Refusal
from holdfast.runtime.cooperative import Steps, at_once

_SOL_NETLINK = 270
_ADD_MEMBERSHIP, _CAP_ACK, _EXT_ACK, _STRICT_CHECK = 1, 10, 11, 12
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SO_ATTACH_FILTER = 26
_BUFFER = 8 << 20
_LARGEST_ANSWER = 1 << 20
_IN_ONE_SEND = 2_048
_ROOM_FOR_A_REFUSAL = 2_048
"""What a refusal with its words occupies of the receive buffer, about a kilobyte, with a margin."""
_IN_ONE_STEP = 8  # datagrams of a dump, of up to 32 KiB
_TRIES = 20


class DumpInterrupted(Exception):
    """A dump was interrupted again and again: what was read is not the whole table."""


class NetlinkError(OSError):
    """The kernel refuses what is no matter of a single object."""


class Netlink:
    """One socket of a netlink family, in the network namespace in which it was made."""

    def __init__(self, family: int, groups: Sequence[int] = (), *, is_blocking: bool = True) -> None:
        """With groups, a socket that listens to what happens; see `receive`."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, family)
        self._socket.setblocking(is_blocking)
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            self._enlarge(option)
        for option in (_CAP_ACK, _EXT_ACK, _STRICT_CHECK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._in_one_send = _fitting(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        self._socket.bind((0, 0))
        for group in groups:
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def _enlarge(self, option: int) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        except PermissionError:  # without the right to force, what the system allows must do
            self._socket.setsockopt(socket.SOL_SOCKET, {32: socket.SO_SNDBUF, 33: socket.SO_RCVBUF}[option], _BUFFER)

    @property
    def port(self) -> int:
        """By which the kernel names this socket as the cause of a change."""
        port: int = self._socket.getsockname()[0]
        return port

    def filter(self, program: bytes) -> None:
        """Has the kernel drop what this program of classic BPF instructions does not let through."""
        kept = ctypes.create_string_buffer(program)
        described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def transact(self, batch: Batch) -> list[Refusal]:
        """Has the kernel do every request of the batch, in order; what it did not do, and why."""
        refused: list[Refusal] = []
        for start in range(0, len(batch), self._in_one_send):
            refused += self._transact(batch[start : start + self._in_one_send])
        return refused

    def _transact(self, part: Batch) -> list[Refusal]:
        # Only the last is acknowledged: the kernel answers in order, so its answer is the last of all.
        before = part["flags"][-1]
        part["flags"][-1] = before | MessageFlag.ACK
        try:
            self._socket.send(part.tobytes())
        finally:
            part["flags"][-1] = before
        return self._refusals(int(part["sequence"][-1]))

    def _refusals(self, last: int) -> list[Refusal]:
        refused = []
        while True:
            for message in wire.messages(self._answer()):
                if message.type != wire.NLMSG_ERROR:
                    continue
                if number := wire.errno_of(message):
                    refused.append(Refusal(message.sequence - 1, number, wire.words_of(message)))
                if message.sequence == last:
                    return refused

    def ask(self, request: bytes) -> None:
        """One request by itself. Raises `NetlinkError` when it is refused."""
        self._socket.send(request)
        while True:
            for message in wire.messages(self._answer()):
                if message.type == wire.NLMSG_ERROR:
                    _raise_if_refused(message)
                    return

    def exchange(self, packed: bytes) -> list[Message]:
        """Sends requests as they are; all that the kernel says to them. It has said it when the send returns."""
        self._socket.send(packed)
        said: list[Message] = []
        while True:
            try:
                said += wire.messages(self._socket.recv(_LARGEST_ANSWER, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return said

    def dump(self, request: bytes) -> list[bytes]:
        """All datagrams of a dump, whole. Raises `DumpInterrupted`."""
        return at_once(self.dumping(request))

    def dumping(self, request: bytes) -> Steps[list[bytes]]:
        """The same in steps. Until the last one, nobody else may ask anything on this socket."""
        for _ in range(_TRIES):
            datagrams, whole = yield from self._dumping(request)
            if whole:
                return datagrams
        raise DumpInterrupted("the kernel's table changed during each of many dumps; it is read again later")

    def _dumping(self, request: bytes) -> Steps[tuple[list[bytes], bool]]:
        self._socket.send(request)
        datagrams, whole = [], True
        while True:
            datagram = self._answer()
            datagrams.append(datagram)
            for run in runs(datagram):
                whole &= not flags(run) & MessageFlag.DUMP_INTERRUPTED  # it may be on any message, and only on one
            if kind(run) in (wire.NLMSG_DONE, wire.NLMSG_ERROR):
                _raise_if_refused(next(wire.messages(run.tobytes())))
                return datagrams, whole
            if len(datagrams) % _IN_ONE_STEP == 0:
                yield from self._interval()

    def _interval(self) -> Steps[None]:
        try:
            yield
        except GeneratorExit:
            self._forget()
            raise

    def receive(self) -> Iterator[Message]:
        """The messages of the next datagram, for a socket that listens to events."""
        return wire.messages(self._receive())

    def _answer(self) -> bytes:
        try:
            return self._receive()
        except OSError as error:
            self._forget()
            if error.errno == errno.ENOBUFS:  # what was done is not known; whoever looks and asks again asks for less
                self._in_one_send = max(1, self._in_one_send // 2)
            raise

    def _forget(self) -> None:
        """What is left of an answer that broke off must not be taken for the answer to the next question."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(_LARGEST_ANSWER, socket.MSG_DONTWAIT)

    def _receive(self) -> bytes:
        return self._socket.recv(_LARGEST_ANSWER)


def _fitting(room: int) -> int:
    """How many requests may all be refused before anybody reads the answers."""
    return max(1, min(_IN_ONE_SEND, room // _ROOM_FOR_A_REFUSAL))


def _raise_if_refused(message: Message) -> None:
    number = wire.errno_of(message)
    if number:
        words = wire.words_of(message) or os.strerror(number)
        raise NetlinkError(number, words)


def is_gone(number: int) -> bool:
    """Whether an error says that what was to be deleted is not there."""
    return number in (errno.ENOENT, errno.ESRCH, errno.ENODEV)
