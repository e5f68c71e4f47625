"""Netlink socket: batches in, refusals out; dumps that are complete or fail.

`transact` returns when the kernel has processed the whole batch. It sends no more at once than there is buffer for
refusals: a process that may not enlarge its buffers, as in a container, sends fewer requests at a time. A dump during
which the kernel's table changed is repeated; `DumpInterrupted` means that it changed every time. No caller gets part of
a table.
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
"""Receive buffer that a refusal with its text takes, about a kilobyte, with a margin."""
_IN_ONE_STEP = 8  # datagrams of a dump, of up to 32 KiB
_TRIES = 20


class DumpInterrupted(Exception):
    """A dump was interrupted again and again: what was read is not the whole table."""


class NetlinkError(OSError):
    """The kernel refuses a request as a whole."""


class Netlink:
    """Socket of one netlink family, in the network namespace in which it was created."""

    def __init__(self, family: int, groups: Sequence[int] = (), *, is_blocking: bool = True) -> None:
        """With groups, a socket that receives events; see `receive`."""
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_NETLINK, kind, family)
        self._socket.setblocking(is_blocking)
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            self._enlarge(option)
        for option in (_CAP_ACK, _EXT_ACK, _STRICT_CHECK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._in_one_send = _requests_per_send(self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
        self._socket.bind((0, 0))
        for group in groups:
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def _enlarge(self, option: int) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        except PermissionError:  # without CAP_NET_ADMIN, the system's limit applies
            self._socket.setsockopt(socket.SOL_SOCKET, {32: socket.SO_SNDBUF, 33: socket.SO_RCVBUF}[option], _BUFFER)

    @property
    def port(self) -> int:
        """Port by which the kernel names this socket as the cause of a change."""
        port: int = self._socket.getsockname()[0]
        return port

    def filter(self, program: bytes) -> None:
        """Have the kernel drop what this program of classic BPF instructions does not accept."""
        kept = ctypes.create_string_buffer(program)
        described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, described)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def transact(self, batch: Batch) -> list[Refusal]:
        """Send every request of the batch, in order; return the refused ones."""
        refused: list[Refusal] = []
        for start in range(0, len(batch), self._in_one_send):
            refused += self._transact(batch[start : start + self._in_one_send])
        return refused

    def _transact(self, part: Batch) -> list[Refusal]:
        # Request one acknowledgement, of the last: the kernel answers in order, so it comes after all errors.
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
                    refused.append(Refusal(message.sequence - 1, number, wire.error_text(message)))
                if message.sequence == last:
                    return refused

    def send_request(self, request: bytes) -> None:
        """Send one request. Raises `NetlinkError` when it is refused."""
        self._socket.send(request)
        while True:
            for message in wire.messages(self._answer()):
                if message.type == wire.NLMSG_ERROR:
                    _raise_if_refused(message)
                    return

    def exchange(self, packed: bytes) -> list[Message]:
        """Send requests as they are; return all answers, which are complete when the send returns."""
        self._socket.send(packed)
        answers: list[Message] = []
        while True:
            try:
                answers += wire.messages(self._socket.recv(_LARGEST_ANSWER, socket.MSG_DONTWAIT))
            except BlockingIOError:
                return answers

    def dump(self, request: bytes) -> list[bytes]:
        """All datagrams of a dump, complete. Raises `DumpInterrupted`."""
        return at_once(self.dump_steps(request))

    def dump_steps(self, request: bytes) -> Steps[list[bytes]]:
        """The same in steps. Until the last one, nothing else may use this socket."""
        for _ in range(_TRIES):
            datagrams, whole = yield from self._dump_once(request)
            if whole:
                return datagrams
        raise DumpInterrupted("the kernel's table changed during every attempt to dump it; trying again later")

    def _dump_once(self, request: bytes) -> Steps[tuple[list[bytes], bool]]:
        self._socket.send(request)
        datagrams, whole = [], True
        while True:
            datagram = self._answer()
            datagrams.append(datagram)
            for run in runs(datagram):
                whole &= not flags(run) & MessageFlag.DUMP_INTERRUPTED  # it may be on any single message
            if kind(run) in (wire.NLMSG_DONE, wire.NLMSG_ERROR):
                _raise_if_refused(next(wire.messages(run.tobytes())))
                return datagrams, whole
            if len(datagrams) % _IN_ONE_STEP == 0:
                yield from self._yield_turn()

    def _yield_turn(self) -> Steps[None]:
        try:
            yield
        except GeneratorExit:
            self._drop_answers()
            raise

    def receive(self) -> Iterator[Message]:
        """Messages of the next datagram, for a socket that receives events."""
        return wire.messages(self._receive())

    def _answer(self) -> bytes:
        try:
            return self._receive()
        except OSError as error:
            self._drop_answers()
            if error.errno == errno.ENOBUFS:  # the outcome is unknown; the retry sends fewer at once
                self._in_one_send = max(1, self._in_one_send // 2)
            raise

    def _drop_answers(self) -> None:
        """Drop the rest of an interrupted answer, so that it is not taken for the answer to the next request."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(_LARGEST_ANSWER, socket.MSG_DONTWAIT)

    def _receive(self) -> bytes:
        return self._socket.recv(_LARGEST_ANSWER)


def _requests_per_send(room: int) -> int:
    """Requests that may all be refused before the answers are read."""
    return max(1, min(_IN_ONE_SEND, room // _ROOM_FOR_A_REFUSAL))


def _raise_if_refused(message: Message) -> None:
    number = wire.errno_of(message)
    if number:
        text = wire.error_text(message) or os.strerror(number)
        raise NetlinkError(number, text)


def is_gone(number: int) -> bool:
    """Return whether an error says that the object to delete does not exist."""
    return number in (errno.ENOENT, errno.ESRCH, errno.ENODEV)
