"""The report of a balancer stays within its limits, and says what it left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from holdfast.model.base import codec
from holdfast.model.fleet.balancer_report import (
    BALANCER_REPORT,
    REPORT_LIMIT,
    TEXT_LIMIT,
    BackendReport,
    BalancerReport,
    FrontendReport,
    PoolReport,
    detailed,
)


def _report(frontends: int) -> BalancerReport:
    states = {f"web-{number}": "up" for number in range(frontends)}
    return BalancerReport(version="1", table="t", configuration="c", health="h", intents="i", frontends=states)


def _details(frontends: int) -> Iterator[tuple[str, FrontendReport]]:
    down = BackendReport(name="b1", address="10.0.0.1:80", state="down", configured=100, why="L4TOUT " * 40)
    pool = PoolReport(up=0, total=1, backends=(down,))
    for number in range(frontends):
        yield f"web-{number}", FrontendReport(vip="192.0.2.1:80/tcp", pools=(pool,))


def test_a_small_report_has_the_details_of_all_frontends() -> None:
    found = detailed(_report(3), _details(3))
    assert (list(found.details), found.details_left_out) == (["web-0", "web-1", "web-2"], 0)
    assert len(found.details["web-0"].pools[0].backends[0].why) == TEXT_LIMIT


def test_a_large_report_keeps_the_first_details_within_the_limit_and_counts_the_others() -> None:
    asked = itertools.count()
    counted = (one for one in _details(2_000) if next(asked) >= 0)
    found = detailed(_report(300), counted)
    size = len(BALANCER_REPORT.encode(found))
    assert REPORT_LIMIT * 0.9 < size <= REPORT_LIMIT
    assert list(found.details) == [f"web-{number}" for number in range(len(found.details))]
    assert found.details_left_out == 300 - len(found.details) > 0
    assert len(found.frontends) == 300, "peers judge a VIP by the states of all frontends"
    assert next(asked) == len(found.details) + 1, "what does not fit is not even computed"


def test_a_report_that_is_full_without_details_has_none() -> None:
    found = detailed(_report(2_000), _details(2_000))
    assert (found.details, found.details_left_out) == ({}, 2_000)


def test_a_report_without_details_is_that_of_an_older_balancer() -> None:
    older = codec.encode(_report(1))
    found = BALANCER_REPORT.decode(b"k", older)
    assert isinstance(found, BalancerReport)
    assert (found.details, found.details_left_out) == ({}, 0)
