"""Which member is asked next, and which one is not believed."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.config.sections.store import StoreSettings
from holdfast.model.base.time import Duration, Instant
from holdfast.runtime.store_client import connection
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.transport.endpoints import GONE_AFTER, MemberList, RevisionFloor
from holdfast.store.transport.gateway import Connection, Gateway
from holdfast.store.transport.http import MemberAddress
from holdfast.store.transport.wire import Header
from holdfast.testing.fault import fault
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import etcd_cluster, learner_of
from holdfast.testing.real.processes import reserved_ports
from tests.store.harness import Follower, opened
from tests.store.servers import some_learner

FAILED_PRECONDITION, UNAVAILABLE = 9, 14
NOW = Instant(10**12)


def later(seconds: float) -> Instant:
    return NOW + Duration(seconds=seconds)


def at(revision: int, raft_term: int = 1) -> Header:
    return Header(1, 1, revision, raft_term)


def test_the_member_that_served_last_is_asked_first() -> None:
    endpoints = MemberList(("a", "b", "c"))
    assert endpoints.order(NOW) == ["a", "b", "c"]
    endpoints.judge("b", at(5), RevisionFloor(), NOW)
    assert endpoints.order(NOW) == ["b", "a", "c"]


def test_a_failed_member_is_avoided_for_a_while_and_longer_each_time() -> None:
    endpoints = MemberList(("a", "b"))
    endpoints.failed("a", NOW)
    assert endpoints.order(later(0.9)) == ["b", "a"]
    assert endpoints.order(later(1.1)) == ["a", "b"]
    endpoints.failed("a", later(2))
    assert endpoints.order(later(3.9)) == ["b", "a"]
    for _ in range(20):
        endpoints.failed("a", later(10))
    assert endpoints.order(later(10 + 31)) == ["a", "b"]


def test_when_all_are_avoided_the_one_due_soonest_is_tried_first() -> None:
    endpoints = MemberList(("a", "b"))
    endpoints.failed("a", later(0.5))
    endpoints.failed("b", NOW)
    assert endpoints.order(later(0.6)) == ["b", "a"]


def test_a_member_that_answers_again_is_forgiven() -> None:
    endpoints = MemberList(("a", "b"))
    endpoints.failed("a", NOW)
    endpoints.judge("a", at(1), RevisionFloor(), NOW)
    assert endpoints.order(NOW) == ["a", "b"]


@pytest.mark.parametrize(("header", "word"), [(at(9, 3), "revision 9"), (at(11, 2), "raft term 2")])
def test_an_answer_that_goes_backwards_is_not_believed(header: Header, word: str) -> None:
    endpoints = MemberList(("a", "b"))
    endpoints.judge("a", at(10, 3), RevisionFloor(), NOW)
    objection = endpoints.judge("b", header, endpoints.floor, NOW)
    assert objection is not None
    assert word in objection
    assert endpoints.order(NOW) == ["a", "b"]


def test_an_answer_is_measured_by_what_was_known_when_it_was_asked_for() -> None:
    endpoints = MemberList(("a", "b"))
    asked = endpoints.floor
    endpoints.judge("a", at(10), asked, NOW)
    assert endpoints.judge("b", at(9), asked, NOW) is None


def test_only_when_every_member_went_backwards_does_the_memory_start_anew() -> None:
    endpoints = MemberList(("a", "b"))
    endpoints.judge("a", at(10), RevisionFloor(), NOW)
    assert endpoints.judge("b", at(2), endpoints.floor, NOW)
    assert endpoints.floor.revision == 10
    assert endpoints.judge("a", at(2), endpoints.floor, NOW)
    assert endpoints.floor == RevisionFloor()
    assert endpoints.judge("a", at(2), endpoints.floor, NOW) is None


def test_a_store_restored_onto_one_member_is_believed_once_the_others_have_been_gone_for_a_minute() -> None:
    endpoints = MemberList(("a", "b", "c"))
    endpoints.judge("a", at(10), RevisionFloor(), NOW)
    for url in "bc":
        endpoints.failed(url, NOW)
    early, late = NOW + GONE_AFTER / 2, NOW + GONE_AFTER
    assert endpoints.judge("a", at(2), endpoints.floor, early)
    assert endpoints.floor.revision == 10
    for url in "bc":
        endpoints.failed(url, early)
    assert endpoints.judge("a", at(2), endpoints.floor, late)
    assert endpoints.judge("a", at(2), endpoints.floor, late) is None
    assert endpoints.floor.revision == 2


def test_a_member_that_has_answered_since_it_failed_still_counts_for_the_store() -> None:
    endpoints = MemberList(("a", "b"))
    endpoints.failed("b", NOW)
    endpoints.judge("b", at(10), RevisionFloor(), NOW)
    endpoints.failed("b", NOW + GONE_AFTER)
    assert endpoints.judge("a", at(2), endpoints.floor, NOW + GONE_AFTER)
    assert endpoints.floor.revision == 10


@pytest.mark.parametrize("fault", ["failed", "went backwards"])
def test_C29_a_member_that_failed_long_ago_and_was_not_asked_since_still_counts_for_the_store(fault: str) -> None:
    endpoints = MemberList(("a", "b"))
    endpoints.judge("a", at(10), RevisionFloor(), NOW)
    if fault == "failed":
        endpoints.failed("b", NOW)
    else:
        endpoints.judge("b", at(2), endpoints.floor, NOW)
    hours_later = NOW + 200 * GONE_AFTER
    assert endpoints.judge("a", at(2), endpoints.floor, hours_later)
    assert endpoints.floor.revision == 10
    endpoints.failed("b", hours_later)
    assert endpoints.judge("a", at(2), endpoints.floor, hours_later)
    assert endpoints.floor.revision == 10


def test_no_endpoint_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"set store\.endpoints"):
        MemberList(())


@pytest.mark.parametrize("url", ["etcd:2379", "ftp://etcd", "http://", "http://u:p@etcd:2379", "http://etcd:2379/v3"])
def test_what_is_not_an_endpoint_is_refused_with_a_sentence(url: str) -> None:
    with pytest.raises(ValueError, match="is not an endpoint"):
        MemberAddress.parse(url)


def test_an_ipv6_endpoint_is_understood() -> None:
    endpoint = MemberAddress.parse("https://[fd00::1]:2379")
    assert (endpoint.host, endpoint.port, endpoint.authority) == ("fd00::1", 2379, "[fd00::1]:2379")


@fault(
    "C29",
    without="holdfast.store.transport.endpoints:RevisionFloor.objection",
    returns=None,
    sees=(pytest.fail.Exception, "DID NOT RAISE StoreAway"),
)
def test_C29_a_member_that_was_restored_is_left(folder: Path) -> None:
    async def main() -> None:
        async with (
            EmbeddedEtcd(folder / "a") as good,
            EmbeddedEtcd(folder / "b") as restored,
            opened(Connection((good.endpoint, restored.endpoint))) as store,
        ):
            for i in range(10):
                await store.put(b"key", b"%d" % i)
            await good.stop()
            with pytest.raises(StoreAway, match="stale or was restored"):
                await store.get(b"key")

    asyncio.run(main())


def test_another_member_serves_when_the_first_is_gone(etcd: EmbeddedEtcd, prefix: bytes) -> None:
    async def main() -> None:
        async with opened(Connection((f"http://127.0.0.1:{nobody}", etcd.endpoint))) as store:
            await store.put(prefix, b"written")
            entry = await store.get(prefix)
            assert entry is not None
            assert entry.value == b"written"

    with reserved_ports(1) as (nobody,):
        asyncio.run(main())


def as_configured(urls: Sequence[str], host: str) -> Sequence[str]:
    """Stands in for the order of a host."""
    return urls


@fault(
    "C55",
    without="holdfast.store.transport.gateway:spread",
    by="tests.store.transport.test_endpoints:as_configured",
    sees=(AssertionError, r"len\(orders\) == 6"),
)
def test_C55_hosts_of_one_configuration_spread_over_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    members = tuple(f"http://etcd-{number}:2379" for number in (1, 2, 3))
    orders: Counter[tuple[str, ...]] = Counter()
    for number in range(600):
        monkeypatch.setattr(socket, "gethostname", lambda name=f"compute-{number:03}": name)
        for _ in range(2):
            gateway = Gateway(connection(StoreSettings(endpoints=members)), lambda: NOW)
            orders[tuple(gateway.endpoints.order(NOW))] += 1
        assert gateway.urls == members
    assert sum(orders.values()) == 1_200
    assert all(number % 2 == 0 for number in orders.values()), "a restart changes no order"
    assert len(orders) == 6, "the clients of a member that fails divide among the others"
    assert min(orders.values()) > 130


async def use_with_learner_first(learner: str, voter: str, prefix: bytes) -> None:
    """Write, lease and watch with the learner as the first member: at the start, and whenever it is its turn again."""
    async with opened(Connection((learner, voter))) as store:
        for first in range(2):
            await store.put(prefix + b"%d" % first, b"")
            store._gateway.endpoints = MemberList((learner, voter))
        lease = await store.grant(Duration(seconds=5))
        store._gateway.endpoints = MemberList((learner, voter))
        await store.renew(lease)
        store._gateway.endpoints = MemberList((learner, voter))
        async with Follower(store, prefix) as follower:
            assert set(follower.seen) == {prefix + b"0", prefix + b"1"}


@fault(
    "C53",
    without="holdfast.store.transport.failures:learner",
    returns=None,
    sees=((StoreAway, StoreError), "rpc not supported for learner|cannot serve now"),
)
@pytest.mark.parametrize("code", [FAILED_PRECONDITION, UNAVAILABLE])
def test_C53_a_learner_is_left_and_the_next_member_asked(etcd: EmbeddedEtcd, prefix: bytes, code: int) -> None:
    with some_learner(code) as learner:
        asyncio.run(use_with_learner_first(learner, etcd.endpoint, prefix))


@fault(
    "C53",
    without="holdfast.store.transport.failures:learner",
    returns=None,
    sees=((StoreAway, StoreError), "rpc not supported for learner|cannot serve now"),
)
def test_C53_a_learner_of_a_real_etcd_is_left_and_the_next_member_asked(prefix: bytes) -> None:
    with or_skip(etcd_cluster(1)) as cluster, learner_of(cluster) as learner:
        asyncio.run(use_with_learner_first(learner.url, cluster.endpoints[0], prefix))
