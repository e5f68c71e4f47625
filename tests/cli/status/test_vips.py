"""VIPs on the status page, to the letter."""

from __future__ import annotations

from holdfast.cli.status import vips
from holdfast.store.balancers import BalancerSeen


def seen(name: str, table: str = "b71e09aa", **states: str) -> BalancerSeen:
    return BalancerSeen(name, "1", states, table)


def test_without_a_balancer_there_is_no_row() -> None:
    assert vips.lines([]) == []


def test_a_vip_serves_only_if_all_balancers_that_have_it_say_so() -> None:
    found = vips.lines(
        [seen("lb-1", web="up", dns="up", old="down"), seen("lb-2", web="up", dns="down", old="down", new="unknown")]
    )
    expected = "VIPS            4   serving 1   degraded 1   dark 1   unknown 1   table b71e09 on 2 balancers"
    assert found == ["", expected]


def test_tables_that_differ_are_named() -> None:
    three = [seen("lb-1", web="up"), seen("lb-2", web="up"), seen("lb-3", "ffeedd00", web="up")]
    assert vips.lines(three)[1].endswith("tables differ: b71e09 on 2, ffeedd on 1")


def test_it_fits_80_columns() -> None:
    assert max(map(len, vips.lines([seen("lb-1", web="up"), seen("lb-2", "ffeedd00", web="unknown")], 80))) <= 80
