"""Hosts and endpoints on the status page, to the letter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.cli.status import observed
from holdfast.cli.status.page import exit_code, render
from holdfast.cli.status.view import StatusView
from tests.cli.status.test_page import daemon, worker

NOW = datetime(2026, 11, 15, 3, 12, 44, tzinfo=UTC)
LEVEL = {"revisions": 0, "waiting": 0, "s": 0.0}


def said(total: int, states: dict[str, int], **more: Any) -> dict[str, Any]:
    nothing: dict[str, Any] = {
        "silent": [],
        "silent_total": 0,
        "clock_off": [],
        "orphans": {},
        "bad": [],
        "bad_total": 0,
        "behind": LEVEL,
    }
    return {"leading": True, "total": total, "states": states, **nothing, **more}


HOSTS = said(
    5_003,
    {"alive": 5_002, "silent": 1},
    silent=[{"host": "r12-07", "since_s": 271.0, "at": "03:08:13"}],
    silent_total=1,
    clock_off=[{"host": "r03-11", "by_s": 41.0}],
)
ENDPOINTS = said(
    98_211,
    {"up": 98_170, "down": 0, "error": 0, "unknown": 41},
    orphans={"r12-07": 41},
    bad=["/calico/felix/v2/no-region/host/x/status: not JSON"],
    bad_total=1,
)
SEEN = {observed.AGENTS: HOSTS, observed.ENDPOINTS: ENDPOINTS}


def test_the_fleet_is_summed_up_below_the_workers() -> None:
    assert observed.lines(SEEN) == [
        "",
        "HOSTS       5,003   alive 5,002   silent 1   clock off: r03-11 +41 s",
        "ENDPOINTS  98,211   up 98,170   down 0   error 0   unknown 41   without an agent 41",
        "UNREADABLE      1   /calico/felix/v2/no-region/host/x/status: not JSON, skipped   see holdfast doctor",
    ]


def test_a_silent_agent_needs_action_and_says_what_stays() -> None:
    view = StatusView([daemon(worker("agent-status"), role="server")], seen=SEEN)
    page = render(view, NOW)
    assert exit_code(view) == 1
    assert (
        " 1 r12-07           agent silent for 00:04:31 (lease expired 03:08:13); routes to its 41 endpoints stay, "
        "their status is unknown\n                    To inspect: holdfast explain host r12-07\n"
    ) in page
    assert page.endswith("holdfast doctor\n")


def test_many_silent_agents_are_named_up_to_five() -> None:
    silent = [{"host": f"r{number}", "since_s": 9.0, "at": "03:08:13"} for number in range(9)]
    seen = {observed.AGENTS: said(9, {"alive": 0, "silent": 9}, silent=silent, silent_total=9)}
    told = list(observed.problems(seen))
    assert [who for who, _, _ in told] == ["r0", "r1", "r2", "r3", "r4", "hosts"]
    assert told[-1][1] == "4 more agents are silent"


def test_status_that_is_behind_says_how_far() -> None:
    behind = {"revisions": 123_456, "waiting": 2_000, "s": 390.0}
    seen = {observed.AGENTS: said(2_000, {"alive": 2_000, "silent": 0}, behind=behind)}
    ((who, sentence, look),) = observed.problems(seen)
    assert who == "agent-status"
    assert sentence == "status is behind by 00:06:30: 123,456 revisions, 2,000 objects waiting"
    assert look == "holdfast plan agent-status"


def test_without_a_leader_here_the_fleet_is_not_shown() -> None:
    assert observed.lines({}) == []


def test_arrivals_that_the_webhook_does_not_accept_need_action() -> None:
    waiting = [{"endpoint": "openstack-vm1-p1", "error": "the webhook answered 503"}]
    untold = {"under_way": 3, "notified": 1, "waiting": waiting, "failing": 2}
    (trouble,) = observed.problems({observed.ENDPOINTS: {**ENDPOINTS, "migrations": untold}})
    assert trouble == (
        "endpoint-status",
        "the webhook was not notified of 2 arrived live migrations; openstack-vm1-p1: the webhook answered 503",
        "holdfast explain endpoint openstack-vm1-p1",
    )


def test_explain_says_whether_the_webhook_was_notified_of_an_arrival() -> None:
    seen = {
        "seen": "ACTIVE",
        "host": "r1",
        "agent_alive": True,
        "report": "",
        "revision": 0,
        "outstanding": [],
        "migrations": [
            {"from": "r1", "to": "r2", "notified": None, "error": None, "held": None},
            {"from": "r1", "to": "r5", "notified": None, "error": None, "held": "paused by alice"},
            {"from": "r1", "to": "r3", "notified": None, "error": "the webhook answered 503", "held": None},
            {"from": "r1", "to": "r4", "notified": "2026-11-15T03:12:44+00:00", "error": None, "held": None},
        ],
    }
    assert list(observed.explain_lines([seen]))[2:] == [
        "WEBHOOK     waiting for the arrival: r1 → r2",
        "WEBHOOK     notice of the arrival is held: paused by alice: r1 → r5",
        "WEBHOOK     not notified of the arrival: the webhook answered 503: r1 → r3",
        "WEBHOOK     notified of the arrival at 2026-11-15T03:12:44+00:00: r1 → r4",
    ]


def test_unreadable_keys_of_both_workers_are_counted_however_few_are_named() -> None:
    agents = said(1, {"alive": 1, "silent": 0}, bad=["/a: not JSON"], bad_total=30)
    both = {observed.AGENTS: agents, observed.ENDPOINTS: {**ENDPOINTS, "bad": ["/b: not JSON"], "bad_total": 30}}
    assert observed.lines(both)[-1].startswith("UNREADABLE     60   /a: not JSON, skipped")


def test_a_leader_that_has_not_compared_all_reports_yet_is_not_healthy() -> None:
    unknown = {**ENDPOINTS, "passes": 0, "total": 0}
    view = StatusView([daemon(worker("peers"))], seen={observed.ENDPOINTS: unknown})
    assert exit_code(view) == 3
    assert "ENDPOINTS       –   not known before the new leader has compared all reports" in render(view, NOW)
    assert exit_code(StatusView(view.reports, seen={observed.ENDPOINTS: {**unknown, "passes": 1}})) == 0
