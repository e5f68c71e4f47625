"""Scenes of status: an unreadable value stops no worker, a backlog is bounded; the fleet on the status page."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.testing.real.processes import wait_until
from tests.lab.harness import broken, needs_etcd


def holdfast(lab: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--runtime", str(lab / "run")])


@needs_etcd
def test_an_unreadable_value_is_reported_and_stops_no_worker(lab: Path) -> None:
    wait_until(lambda: "HOSTS" in holdfast(lab, "status").output, "the lab's hosts are on the page", within=90)
    result = broken(lab, "poison-key")
    assert result.exit_code == 0, result.output
    assert "scene-unreadable-0/status: JSON of the wrong shape" in result.output
    assert "4 of 4 hosts with an unreadable value count as present" in result.output
    assert re.search(r"a valid report is in the inventory after \d+\.\d\d s", result.output)


@needs_etcd
def test_a_backlog_is_bounded_and_named_as_ours(lab: Path) -> None:
    wait_until(lambda: "HOSTS" in holdfast(lab, "status").output, "the lab's hosts are on the page", within=90)
    result = broken(lab, "backlog")
    assert result.exit_code == 0, result.output
    assert re.search(r"backlog: \d+ objects, [\d,]+ revisions", result.output)
    assert "agent-status reports: status is behind, our backlog: " in result.output
    assert "the last report of every host is in the inventory" in result.output


@needs_etcd
def test_the_page_has_hosts_and_endpoints_and_explain_shows_the_status_of_an_endpoint(lab: Path) -> None:
    pages: list[str] = []

    def whole() -> bool:
        pages[:] = [holdfast(lab, "status").output]
        return "HOSTS" in pages[0] and "ENDPOINTS" in pages[0]

    wait_until(whole, "the lab's hosts and endpoints are on the page", within=90)
    (page,) = pages
    assert re.search(r"^HOSTS +\d+   alive \d+   silent \d+", page, re.MULTILINE)
    assert re.search(
        r"^ENDPOINTS +\d+   up \d+   down \d+   error \d+   unknown \d+   without an agent \d+", page, re.MULTILINE
    )
    made_of = re.compile(r"^STATUS +(ACTIVE|DOWN|ERROR) \(on r1-\d+, its agent is alive\)", re.MULTILINE)
    explain = ("explain", "endpoint", "holdfast-web--01-eth0")
    wait_until(lambda: made_of.search(holdfast(lab, *explain).output) is not None, "its status is explained", within=90)
    assert holdfast(lab, "get", "endpoints", "--orphaned").exit_code == 0
