"""Netlink's wire format: batches that name their refusals, complete dumps, columns equal to the messages."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.netlink import wire
from holdfast.netlink.columns import columns, runs
from holdfast.netlink.socket import DumpInterrupted, Netlink, NetlinkError
from holdfast.netlink.wire import Attribute, MessageFlag, RequestLayout

KIND = 24
FIXED = np.dtype([*wire.HEADER, ("number", "=u4")])


def message(
    number: int, attributes: Sequence[tuple[int, bytes]] = (), kind: int = KIND, flags: int = 0, sequence: int = 1
) -> bytes:
    body = struct.pack("=I", number) + b"".join(wire.attribute(*one) for one in attributes)
    framed = struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body
    return framed + bytes(-len(framed) % 4)


def done(flags: int = 0) -> bytes:
    return struct.pack("=IHHIIi", 20, wire.NLMSG_DONE, flags, 1, 0, 0)


def refusal(number: int, sequence: int) -> bytes:
    return struct.pack("=IHHIIi", 36, wire.NLMSG_ERROR, MessageFlag.CAPPED, sequence, 0, -number) + bytes(16)


attribute_lists = st.lists(
    st.tuples(st.integers(1, 60), st.binary(max_size=20)), max_size=4, unique_by=lambda one: one[0]
)


@settings(deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2**32 - 1), attribute_lists), min_size=1, max_size=8), max_size=4))
def test_columns_hold_exactly_the_content_of_the_messages(
    datagrams: list[list[tuple[int, list[tuple[int, bytes]]]]],
) -> None:
    sent = [b"".join(message(*one) for one in datagram) for datagram in datagrams]
    found = []
    for shape in columns([*sent, done()], FIXED):
        kinds = {kind: shape.octets(kind) for kind in shape.attributes}
        found += [
            (int(number), sorted((kind, values[at]) for kind, values in kinds.items()))
            for at, number in enumerate(shape.fixed["number"])
        ]
    told = [(number, sorted(attributes)) for datagram in datagrams for number, attributes in datagram]
    assert sorted(found) == sorted(told)


@settings(deadline=None)
@given(st.lists(st.sampled_from([4, 8, 12]), min_size=1, max_size=30))
def test_runs_cut_a_datagram_where_the_length_changes_and_lose_nothing(sizes: list[int]) -> None:
    datagram = b"".join(message(at, [(1, bytes(size))]) for at, size in enumerate(sizes))
    cut = list(runs(datagram))
    assert b"".join(run.tobytes() for run in cut) == datagram
    assert all(one.shape[1] != other.shape[1] for one, other in pairwise(cut))


@pytest.mark.parametrize("size", [4, 6, 16])
def test_an_address_or_mac_in_a_column_is_its_number(size: int) -> None:
    values = [os.urandom(size) for _ in range(5)]
    (shape,) = columns([b"".join(message(1, [(3, value)]) for value in values), done()], FIXED)
    assert shape.big_endian(3) == [int.from_bytes(value, "big") for value in values]


def test_a_batch_is_numbered_from_one_and_carries_its_attributes() -> None:
    batch = RequestLayout((("number", "=u4"),), (Attribute("mac", 2, "V6"),)).batch(2, KIND, MessageFlag.CREATE)
    first, second = wire.messages(batch.tobytes())
    assert (first.sequence, second.sequence, first.flags) == (1, 2, MessageFlag.REQUEST | MessageFlag.CREATE)
    assert {kind: bytes(value) for kind, value in wire.attributes(second.body, 4).items()} == {2: bytes(6)}


class Scripted(Netlink):
    """A kernel with scripted answers."""

    def __init__(self, *answers: bytes) -> None:
        self._socket, self._kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(10)
        self._in_one_send = 100
        for answer in answers:
            self._kernel.send(answer)

    def asked(self) -> int:
        """How often."""
        self._kernel.setblocking(False)
        count = 0
        while True:
            try:
                self._kernel.recv(1 << 20)
            except BlockingIOError:
                return count
            count += 1

    def close(self) -> None:
        super().close()
        self._kernel.close()


INTERRUPTED = message(1, flags=MessageFlag.DUMP_INTERRUPTED)


@pytest.mark.parametrize(
    "first",
    [
        [INTERRUPTED + message(2), done()],
        [message(1) + INTERRUPTED + message(2), done()],
        [message(1), message(2), done(MessageFlag.DUMP_INTERRUPTED)],
        [message(1) + done(MessageFlag.DUMP_INTERRUPTED)],
    ],
    ids=["first message", "one in the middle", "its end", "an end in the same datagram"],
)
def test_a_dump_that_was_interrupted_is_taken_again_and_its_first_part_is_not_used(first: list[bytes]) -> None:
    kernel = Scripted(*first, message(7), done())
    (shape,) = columns(kernel.dump(b"dump"), FIXED)
    assert shape.fixed["number"].tolist() == [7]
    assert kernel.asked() == 2
    kernel.close()


def test_a_dump_that_never_holds_still_is_no_dump() -> None:
    kernel = Scripted(*[INTERRUPTED, done()] * 20)
    with pytest.raises(DumpInterrupted):
        kernel.dump(b"dump")
    kernel.close()


def test_a_dump_that_is_refused_says_why() -> None:
    kernel = Scripted(refusal(errno.EPERM, 1))
    with pytest.raises(NetlinkError, match="Operation not permitted"):
        kernel.dump(b"dump")
    kernel.close()


def test_refusals_name_the_places_of_their_requests_in_the_batch() -> None:
    batch = RequestLayout((("number", "=u4"),), ()).batch(5, KIND, 0)
    kernel = Scripted(refusal(errno.EEXIST, 2) + refusal(errno.ENOENT, 4), refusal(0, 5))
    assert [(one.index, one.errno) for one in kernel.transact(batch)] == [(1, errno.EEXIST), (3, errno.ENOENT)]
    kernel.close()


def test_a_refusal_carries_the_kernels_explanation() -> None:
    text = wire.attribute(1, b"Nexthop id does not exist\0")
    head = struct.pack(
        "=IHHIIi", 36 + len(text), wire.NLMSG_ERROR, MessageFlag.CAPPED | MessageFlag.EXPLAINED, 1, 0, -errno.EINVAL
    )
    kernel = Scripted(head + bytes(16) + text)
    with pytest.raises(NetlinkError, match="Nexthop id does not exist"):
        kernel.send_request(b"please")
    kernel.close()
