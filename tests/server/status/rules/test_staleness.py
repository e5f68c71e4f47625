"""Stale reports: when there is a warning, how often, and which cause it names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.base.time import NEVER, Duration, seconds
from holdfast.model.calico.agent_status import AgentStatus, Unclear
from holdfast.server.status.rules.staleness import Backlog, Cause, LateReport, Staleness
from holdfast.testing.fault import fault

WALL = datetime(2026, 11, 15, 3, 12, 44, tzinfo=UTC)
UP_FOR_A_WHILE = seconds(100_000)
IDLE = Backlog()


def said(
    staleness: Staleness,
    text: str | None,
    *,
    host: str = "r12-07",
    live: bool = True,
    behind: Backlog = IDLE,
    up: Duration = UP_FOR_A_WHILE,
    fleet: Sequence[float] = (),
) -> LateReport | Unclear | None:
    """`fleet` is the lateness of all hosts in seconds."""
    reported, all_late = AgentStatus(text).reported, sorted(map(seconds, fleet))
    return staleness.report(host, reported, live=live, behind=behind, wall=WALL, now=NEVER + up, fleet=lambda: all_late)


def ago(age: float) -> str:
    return (WALL - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_report_of_just_under_the_threshold_is_not_warned_about() -> None:
    assert said(Staleness(), ago(300)) is None


def test_a_report_of_just_over_the_threshold_is_warned_about() -> None:
    late = said(Staleness(), ago(301))
    assert isinstance(late, LateReport)
    assert late.age == seconds(301)
    assert "r12-07" in late.sentence


def test_there_is_one_warning_per_five_minutes_and_all_are_counted() -> None:
    staleness = Staleness()
    warned = [said(staleness, ago(400), up=UP_FOR_A_WHILE + seconds(after)) for after in (0, 1, 299, 300, 301, 600)]
    assert [one is not None for one in warned] == [True, False, False, True, False, True]
    assert sum(staleness.counted.values()) == 6


@fault(
    "C6",
    without="holdfast.server.status.rules.staleness:is_first",
    returns=False,
    sees=(AssertionError, r"said\(Staleness\(\), ago\(400\), up=seconds\(60\)\) is not None"),
)
def test_C6_the_first_warning_passes_on_a_machine_that_was_started_a_minute_ago() -> None:
    assert said(Staleness(), ago(400), up=seconds(60)) is not None


@fault(
    "C7",
    without="holdfast.model.calico.agent_status:parse_time",
    by="tests.server.status.without_protection:read_aware_only",
    sees=(AssertionError, r"said\(Staleness\(\)"),
)
def test_C7_a_time_without_a_zone_is_utc() -> None:
    assert said(Staleness(), "2026-11-15T03:12:00") is None
    late = said(Staleness(), "2026-11-15T03:00:00")
    assert isinstance(late, LateReport)
    assert late.age == seconds(764)


@pytest.mark.parametrize("text", ["2026-11-15T03:00:00Z", "2026-11-15T04:00:00+01:00", "2026-11-14T22:30:00-04:30"])
def test_zones_and_offsets_are_understood(text: str) -> None:
    late = said(Staleness(), text)
    assert isinstance(late, LateReport)
    assert late.age == seconds(764)


@fault(
    "C8",
    without="holdfast.server.status.rules.staleness:is_judged",
    returns=True,
    sees=(AssertionError, r"said\(staleness, ago\(86_400\), live=False\) is None"),
)
def test_C8_old_times_in_a_snapshot_are_not_counted_as_late() -> None:
    staleness = Staleness()
    assert said(staleness, ago(86_400), live=False) is None
    assert sum(staleness.counted.values()) == 0


def test_a_report_without_a_time_is_passed_over() -> None:
    staleness = Staleness()
    assert said(staleness, None) is None
    assert staleness.unparseable == 0


def test_an_unparseable_time_is_warned_about_once_in_a_while() -> None:
    staleness = Staleness()
    first, second = said(staleness, "yesterday"), said(staleness, "yesterday")
    assert first is Unclear.UNPARSEABLE
    assert second is None
    assert staleness.unparseable == 2


def test_the_warning_about_an_unparseable_time_does_not_suppress_the_one_about_staleness() -> None:
    staleness = Staleness()
    said(staleness, "yesterday")
    assert isinstance(said(staleness, ago(400)), LateReport)


def test_time_that_a_report_waited_is_our_backlog_with_its_size() -> None:
    late = said(Staleness(), ago(400), behind=Backlog(revisions=123_456, waiting=2_000, oldest=seconds(390)))
    assert isinstance(late, LateReport)
    assert late.cause is Cause.BACKLOG
    assert "backlog" in late.sentence
    assert "123,456 revisions behind, 2,000 objects waiting, the oldest for 00:06:30" in late.sentence


def test_a_host_that_is_an_hour_off_report_after_report_has_a_wrong_clock() -> None:
    staleness = Staleness(warn_every=Duration(0))
    causes = [late.cause for _ in range(3) if isinstance(late := said(staleness, ago(3_600)), LateReport)]
    assert causes == [Cause.AGENT, Cause.CLOCK, Cause.CLOCK]
    assert staleness.skews().get("r12-07", Duration(0)) == seconds(-3_600)
    assert staleness.delays == {}


def test_a_clock_that_is_off_is_not_taken_for_a_backlog() -> None:
    staleness = Staleness(warn_every=Duration(0))
    for _ in range(2):
        said(staleness, ago(3_600))
    late = said(staleness, ago(3_700), behind=Backlog(oldest=seconds(100)))
    assert isinstance(late, LateReport)
    assert late.cause is Cause.CLOCK


def test_an_agent_with_a_right_clock_that_reports_late_is_said_to_be_late() -> None:
    staleness = Staleness(warn_every=Duration(0))
    for _ in range(3):
        assert said(staleness, ago(1)) is None
    late = said(staleness, ago(500))
    assert isinstance(late, LateReport)
    assert late.cause is Cause.AGENT
    assert staleness.delays == {"r12-07": seconds(500)}


def test_a_late_agent_that_is_in_time_again_is_not_late_any_more() -> None:
    staleness = Staleness()
    said(staleness, ago(500))
    said(staleness, ago(1))
    assert staleness.delays == {}


def test_nothing_is_learnt_about_a_clock_while_we_are_behind_ourselves() -> None:
    staleness = Staleness()
    for _ in range(3):
        said(staleness, ago(200), behind=Backlog(oldest=seconds(190)))
    assert staleness.skews().get("r12-07", Duration(0)) == Duration(0)


def test_a_clock_that_is_ahead_is_known_and_its_reports_are_not_old() -> None:
    staleness = Staleness()
    assert [said(staleness, ago(-41)) for _ in range(3)] == [None] * 3
    assert staleness.skews().get("r12-07", Duration(0)) == seconds(41)


def test_a_change_that_waits_for_too_long_is_a_backlog_although_nothing_is_handled() -> None:
    staleness = Staleness()
    assert staleness.waiting(Backlog(10, 5, seconds(300)), NEVER + seconds(60)) is None
    late = staleness.waiting(Backlog(10, 5, seconds(301)), NEVER + seconds(60))
    assert late is not None
    assert late.cause is Cause.BACKLOG
    assert late.sentence == (
        "status is behind, our backlog: 10 revisions behind, 5 objects waiting, the oldest for 00:05:01"
    )


def test_both_questions_share_one_warning_per_five_minutes() -> None:
    staleness = Staleness()
    assert said(staleness, ago(400)) is not None
    assert staleness.waiting(Backlog(10, 5, seconds(301)), NEVER + UP_FOR_A_WHILE + seconds(1)) is None


def test_an_unclear_time_is_an_answer_and_no_error() -> None:
    assert AgentStatus("15.11.2026").reported is Unclear.UNPARSEABLE


def test_where_we_are_late_ourselves_that_is_said_and_the_clock_is_not_forgotten() -> None:
    staleness = Staleness()
    for _ in range(2):
        said(staleness, ago(3_600))
    late = said(staleness, ago(4_500), behind=Backlog(70, 9, seconds(900)), up=UP_FOR_A_WHILE + seconds(600))
    assert isinstance(late, LateReport)
    assert late.cause is Cause.BACKLOG
    assert "70 revisions behind, 9 objects waiting, the oldest for 00:15:00" in late.sentence
    assert staleness.skews().get("r12-07", Duration(0)) == -seconds(3_600)
    assert not staleness.delays


def test_what_waits_is_warned_about_and_is_no_report() -> None:
    staleness = Staleness()
    assert staleness.waiting(Backlog(1, 1, seconds(301)), NEVER + UP_FOR_A_WHILE) is not None
    assert sum(staleness.counted.values()) == 0


@pytest.mark.parametrize(
    "text", ["2026-11-15t03:12:43z", "2026-11-15T03:11:60Z", "2026-11-15T03:11:60z", "2026-11-15T08:41:60+05:30"]
)
def test_all_of_rfc_3339_is_understood(text: str) -> None:
    reported = AgentStatus(text).reported
    assert isinstance(reported, datetime)
    assert timedelta(0) < WALL - reported < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("fleet", "cause"),
    [
        ([400, 400, 400], Cause.SERVER),
        ([330, 400, 470, 0, 0], Cause.SERVER),
        ([400, 400, 0, 0], Cause.AGENT),
        ([400, 0, 0, 0, 0], Cause.AGENT),
        ([400, 400], Cause.AGENT),
        ([400, 4_000, 40_000], Cause.AGENT),
    ],
    ids=["all", "most, by about as much", "half", "one", "two hosts cannot tell", "each by another amount"],
)
def test_C51_when_most_hosts_are_late_by_as_much_it_is_this_server(fleet: Sequence[float], cause: Cause) -> None:
    staleness = Staleness()
    late = said(staleness, ago(400), fleet=fleet)
    assert isinstance(late, LateReport)
    assert late.cause is cause
    assert bool(staleness.delays) is (cause is Cause.AGENT)


def test_a_backlog_goes_before_the_clock_of_this_server() -> None:
    late = said(Staleness(), ago(400), fleet=[400] * 5, behind=Backlog(1, 1, seconds(390)))
    assert isinstance(late, LateReport)
    assert late.cause is Cause.BACKLOG


def test_with_a_short_limit_hosts_that_are_in_time_are_not_late_by_as_much() -> None:
    staleness = Staleness(stale_after=seconds(5))
    late = said(staleness, ago(20), fleet=[20, 0, 0, 0])
    assert isinstance(late, LateReport)
    assert late.cause is Cause.AGENT


def test_the_fleet_is_looked_at_only_for_a_stale_report() -> None:
    def never() -> Sequence[Duration]:
        raise AssertionError("no report is stale")

    reported = AgentStatus(ago(1)).reported
    staleness = Staleness()
    now = NEVER + UP_FOR_A_WHILE
    assert staleness.report("r1", reported, live=True, behind=IDLE, wall=WALL, now=now, fleet=never) is None


def test_lateness_is_the_age_of_a_report_without_the_time_since_it_came() -> None:
    staleness, now = Staleness(), NEVER + UP_FOR_A_WHILE
    staleness.heard(["fresh"], now - seconds(20))
    staleness.heard(["silent"], now - seconds(400))
    reports = [("fresh", ago(20)), ("silent", ago(400)), ("listed", ago(100)), ("odd", "yesterday")]
    dated = [(host, AgentStatus(text).reported) for host, text in reports]
    assert staleness.lateness(dated, WALL, now) == [seconds(0), seconds(10), seconds(310)]


def test_what_most_clocks_have_in_common_is_the_offset_of_our_own() -> None:
    staleness = Staleness()
    for host, age in [("a", 60), ("b", 61), ("c", 62), ("d", 160)]:
        for _ in range(2):
            said(staleness, ago(age), host=host)
    assert staleness.own_offset() == seconds(62)
    assert staleness.skews() == {"d": seconds(-98)}


def test_two_hosts_cannot_tell_whose_clock_is_off() -> None:
    staleness = Staleness()
    for host in ("a", "b"):
        for _ in range(2):
            said(staleness, ago(60), host=host)
    assert staleness.own_offset() == Duration(0)
    assert set(staleness.skews()) == {"a", "b"}
