"""Scenes of the balancer on a lab of real processes: it is killed, a backend dies, an operator drains one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.lab.scenes import balancer as balancer_scenes
from holdfast.lab.scenes.stage import Broken
from holdfast.testing.real.flows import FlowCounts
from holdfast.testing.real.processes import wait_until
from tests.lab.harness import broken, needs_etcd


@needs_etcd
def test_a_killed_balancer_comes_back_without_a_write_or_a_failed_request(lab: Path) -> None:
    result = broken(lab, "balancer-restart")
    assert result.exit_code == 0, result.output
    assert "killed the balancer: 3 processes, SIGKILL; 3 backends were programmed" in result.output
    assert re.search(r": 0 dataplane writes; 0 of [\d,]+ requests failed", result.output)


@needs_etcd
def test_a_dead_backend_is_taken_out_its_flows_are_ended_and_it_comes_back(lab: Path) -> None:
    result = broken(lab, "backend-down")
    assert result.exit_code == 0, result.output
    assert re.search(r"weight 0 after [\d.]+ s, its flows ended after [\d.]+ s; until then \d+ of ", result.output)
    assert re.search(r"without it 0 of [\d,]+ requests failed", result.output)
    assert re.search(r"restarted web-2: it serves after [\d.]+ s; 0 of ", result.output)


@needs_etcd
def test_a_wiped_dataplane_is_programmed_again(lab: Path) -> None:
    result = broken(lab, "dataplane-wipe")
    assert result.exit_code == 0, result.output
    assert re.search(r"since then 0 of [\d,]+ requests failed", result.output)


@needs_etcd
def test_a_drained_backend_gets_no_new_flow_and_loses_none(lab: Path) -> None:
    result = broken(lab, "drain")
    assert result.exit_code == 0, result.output
    assert re.search(r"0 new flows, 0 were cut; 0 of [\d,]+ requests failed", result.output)


@needs_etcd
def test_in_a_lab_the_balancer_need_not_be_named(lab: Path) -> None:
    up = re.compile(r"www +192\.0\.2\.80:80/tcp +up")

    def is_up() -> bool:
        shown = asked(lab, "balancer", "status")
        return shown.exit_code == 0 and up.search(shown.output) is not None

    wait_until(is_up, "the frontend is up", within=90)


@needs_etcd
def test_a_frontend_is_paused_and_resumed_by_its_name(lab: Path) -> None:
    paused = asked(lab, "pause", "frontend", "www", "--for", "30m", "--reason", "migration")
    shown, explained = asked(lab, "balancer", "status"), asked(lab, "explain", "frontend", "www")
    resumed = asked(lab, "resume", "frontend", "www")
    assert "www stays as it is programmed now until " in paused.output
    assert re.search(r"paused until \S+ \S+ by \S+: “migration”", shown.output)
    assert "To release: holdfast resume frontend www" in explained.output
    assert resumed.output == "www follows its backends again\n"


def asked(lab: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--runtime", str(lab / "run")])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["frontend"], "name a frontend; holdfast balancer status lists them."),
        (["fleet", "prod"], "there is one fleet: it takes no NAME."),
        (["syncer"], "'syncer' is not one of 'fleet', 'server', 'worker', 'host', 'frontend', 'backend'"),
    ],
)
def test_resume_needs_an_unambiguous_target(tmp_path: Path, words: list[str], sentence: str) -> None:
    refused = asked(tmp_path, "resume", *words)
    assert (refused.exit_code, sentence in refused.output) == (2, True)


def test_a_request_that_failed_is_a_broken_promise() -> None:
    before, after = (
        FlowCounts(requests=10),
        FlowCounts(requests=20, failed=1, why="127.0.0.1:8080: it did not answer in time"),
    )
    with pytest.raises(Broken, match=r"no request fails .*: 127\.0\.0\.1:8080: it did not answer in time"):
        balancer_scenes.none_failed(before, after)
