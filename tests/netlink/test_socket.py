"""A socket whose answer was interrupted: the next request gets its own answer."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest

from holdfast.netlink import links, nexthops
from holdfast.netlink import socket as netlink
from holdfast.netlink.netns import inside
from holdfast.testing.real.netns import NamespaceNetwork

MANY = 2_000


@pytest.fixture
def narrow(namespaces: NamespaceNetwork, monkeypatch: pytest.MonkeyPatch) -> Iterator[netlink.Netlink]:
    """A socket that may not enlarge its buffers, as in a container: it has room for a few hundred refusals."""
    monkeypatch.setattr(netlink, "_BUFFER", 64 << 10)
    made = inside(namespaces.namespace("narrow").system_name, lambda: netlink.Netlink(socket.NETLINK_ROUTE))
    yield made
    made.close()


def test_a_batch_that_is_refused_as_a_whole_fits_into_the_buffer(narrow: netlink.Netlink) -> None:
    nobody_has = nexthops.removals(range(1, MANY + 1))
    assert [one.index for one in narrow.transact(nobody_has)] == list(range(MANY))


def test_where_refusals_take_more_room_than_thought_less_is_asked_the_next_time(narrow: netlink.Netlink) -> None:
    nobody_has = nexthops.removals(range(1, MANY + 1))
    narrow._in_one_send = MANY
    with pytest.raises(OSError, match="buffer"):
        narrow.transact(nobody_has)
    for _ in range(10):
        with contextlib.suppress(OSError):
            refused = narrow.transact(nobody_has)
            break
    assert [one.index for one in refused] == list(range(MANY))


def test_refusals_that_found_no_room_are_not_taken_for_the_next_answers(narrow: netlink.Netlink) -> None:
    nobody_has = nexthops.removals(range(1, MANY + 1))
    narrow._in_one_send = MANY
    with pytest.raises(OSError, match="buffer") as full:
        narrow.transact(nobody_has)
    assert full.value.errno == errno.ENOBUFS
    assert [one.index for one in narrow.transact(nobody_has[:3])] == [0, 1, 2]
    assert nexthops.dump(narrow) == []


def test_an_abandoned_dump_leaves_nothing_for_the_next_request(
    namespaces: NamespaceNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netlink, "_IN_ONE_STEP", 1)
    host = namespaces.namespace("many")
    host.batch(["link add switch type bridge", "link set switch up"])
    kernel = inside(host.system_name, lambda: netlink.Netlink(socket.NETLINK_ROUTE))
    device = links.dump(kernel)["switch"].number
    gateways = [bytes([10, 1, number >> 8, number & 255]) for number in range(MANY)]
    there = [nexthops.Nexthop(number + 1, gateway, device, 175) for number, gateway in enumerate(gateways)]
    assert kernel.transact(nexthops.additions(there, replace=False)) == []
    dumping = nexthops.dump_steps(kernel)
    next(dumping)
    dumping.close()
    assert nexthops.dump(kernel) == there
    kernel.close()
