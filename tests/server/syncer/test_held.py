"""Networks that held deletes concern."""

from __future__ import annotations

from holdfast.server.syncer.held import shares


def test_a_network_that_would_go_as_a_whole_is_named_before_one_that_would_nearly_go() -> None:
    assert list(shares({"blue": 95, "red": 10}, {"blue": 5})) == ["red", "blue"]


def test_a_network_of_which_much_stays_and_no_network_at_all_are_not_named() -> None:
    assert shares({"blue": 50, "": 1_000}, {"blue": 50}) == {}
