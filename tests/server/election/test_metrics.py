"""Metrics of the election, as they are scraped."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from holdfast.model.base.region import Region
from holdfast.model.base.time import Instant, seconds
from holdfast.server.election.leadership import LeadershipCell
from holdfast.server.election.metrics import ElectionMetrics

BEGAN = Instant(1_000_000_000_000)
LEADING = LeadershipCell("leading", term=7, until=BEGAN + seconds(10), work_until=BEGAN + seconds(15), leader="ctl-1")


class Scraped:
    """The metrics of one server of region ams, at any time."""

    def __init__(self) -> None:
        self.at = BEGAN
        self.registry = CollectorRegistry()
        self.metrics = ElectionMetrics(self.registry, lambda: self.at, Region("ams"))

    def after(self, passed: float, name: str) -> float | None:
        self.at = BEGAN + seconds(passed)
        return self.registry.get_sample_value(name, {"region": "ams"})


def test_the_lease_shrinks_between_renewals() -> None:
    scraped = Scraped()
    scraped.metrics.show(LEADING)
    assert [scraped.after(s, "holdfast_lease_remaining_seconds") for s in (0, 4, 9)] == [15, 11, 6]


def test_C1_an_elector_that_says_nothing_more_stops_leading_in_the_metrics_too() -> None:
    scraped = Scraped()
    scraped.metrics.show(LEADING)
    assert [scraped.after(s, "holdfast_leader") for s in (0, 9, 10)] == [1, 1, 0]
    assert [scraped.after(s, "holdfast_term") for s in (9, 10)] == [7, 0]
    assert scraped.after(10, "holdfast_lease_remaining_seconds") == 0


def test_a_follower_knows_of_a_leader_and_has_no_term() -> None:
    scraped = Scraped()
    scraped.metrics.show(LeadershipCell("following", leader="ctl-2"))
    assert [scraped.after(0, f"holdfast_{name}") for name in ("leader", "leader_known", "term")] == [0, 1, 0]
