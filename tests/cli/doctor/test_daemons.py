"""What `doctor` makes of the daemons of this machine."""

from __future__ import annotations

from pathlib import Path

from holdfast.cli.doctor import Finding, Severity
from holdfast.cli.doctor.command import rendered
from holdfast.cli.doctor.daemons import examine, findings
from holdfast.cli.status import observed
from holdfast.cli.status.view import StatusView
from tests.cli.status.test_observed import said
from tests.cli.status.test_page import daemon, worker


def judged(view: StatusView) -> list[tuple[Severity, str]]:
    return [(one.severity, one.sentence) for one in findings(view)]


def test_healthy_daemons_are_one_line() -> None:
    view = StatusView([daemon(worker("peers"))])
    assert judged(view) == [(Severity.GOOD, "1 daemon here, no worker crash-loops")]


def test_a_crash_loop_is_named_with_its_last_failure() -> None:
    looping = worker("vips", crash_looping=True, restarts=9, trouble="exited", evidence="exit code 1")
    sentence = "agent/vips is crash-looping, 9 restarts in 24 h; last: exited (exit code 1)"
    assert judged(StatusView([daemon(looping)])) == [(Severity.WRONG, sentence)]


def test_a_silent_daemon_is_named() -> None:
    silent = StatusView([daemon(worker("peers"))], silent=["agent"])
    assert judged(silent) == [(Severity.WRONG, "the supervisor of agent does not answer: see holdfast status")]


def test_clocks_that_are_off_are_named() -> None:
    def clocks(**more: object) -> list[tuple[Severity, str]]:
        return judged(StatusView([], seen={observed.AGENTS: said(3, {"alive": 3, "silent": 0}, **more)}))[1:]

    assert clocks() == [(Severity.GOOD, "those of 3 hosts agree")]
    off = clocks(clock_off=[{"host": "r03-11", "by_s": 41.0}])
    assert off == [(Severity.WRONG, "off by more than the others: r03-11 +41 s: check their NTP")]
    own = clocks(own_clock_s=12.0)
    assert own == [(Severity.WRONG, "this server is +12 s ahead of most hosts: check its NTP")]
    assert clocks(passes=0) == []


def test_where_no_daemon_runs_there_is_nothing_to_judge(tmp_path: Path) -> None:
    assert list(examine(tmp_path)) == []


def test_a_long_finding_wraps_under_its_sentence_in_80_columns() -> None:
    lines = rendered(Finding(Severity.WRONG, "cluster", "word " * 30), 80)
    assert lines[0].startswith("BAD   cluster    word")
    assert all(line.startswith(" " * 17 + "word") for line in lines[1:])
    assert max(map(len, lines)) <= 80
