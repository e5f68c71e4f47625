"""`holdfast explain worker | gate | intent`: on a daemon whose brake holds deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.explain.running import _chosen
from holdfast.cli.status.view import StatusView
from tests.cli.harness import ALL, Routes, running
from tests.cli.status.test_page import LEADS, daemon, worker


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routes]:
    """A daemon that is to delete all of its routes but two, which its brake holds."""
    with running(tmp_path_factory.mktemp("held")) as one:
        one.want(dict(list(ALL.items())[:2]))
        one.until(lambda: "held" in one.holdfast("status").output, "the brake holds")
        yield one


def test_a_worker_shows_its_pulse_its_problems_and_what_is_held(held: Routes) -> None:
    shown = held.holdfast("explain", "worker", "routes")
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    assert lines[0].startswith("lab/routes is held: brake (pid ")
    assert any(line.startswith("PULSE ") for line in lines)
    assert any(line.startswith("PROBLEM     held by brake") for line in lines)
    assert any(line.startswith("HELD        delete ") for line in lines)
    assert "To release: holdfast gate allow routes/brake --once --reason …" in shown.output


def test_a_gate_shows_what_it_holds_and_why(held: Routes) -> None:
    shown = held.holdfast("explain", "gate", "routes/brake")
    assert shown.exit_code == 0, shown.output
    assert shown.output.startswith("routes/brake holds ")
    assert "\nREASON " in shown.output
    assert "To release: holdfast gate allow routes/brake" in shown.output
    document = json.loads(held.holdfast("explain", "gate", "routes/brake", "-o", "json").output)
    assert {one["gate"] for one in document["held"]} == {"brake"}
    assert held.holdfast("explain", "gate", "routes/sync").output.startswith("routes/sync holds nothing.")


def test_an_intent_shows_who_why_and_how_to_end_it(held: Routes) -> None:
    assert held.holdfast("pause", "worker", "routes", "--reason", "a look").exit_code == 0
    try:
        held.until(lambda: "pause worker routes" in held.holdfast("get", "intents").output, "the intent is in force")
        shown = held.holdfast("explain", "intent", "pause worker routes")
        assert shown.exit_code == 0, shown.output
        assert "it has no end" in shown.output
        assert "\nWHY         a look\n" in shown.output
        assert "To end it: holdfast resume worker routes" in shown.output
    finally:
        assert held.holdfast("resume", "worker", "routes").exit_code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("worker", "rubbish"), "no worker 'rubbish' runs on this machine: name one of lab/"),
        (("gate", "brake"), "name a gate as WORKER/GATE, such as syncer/brake"),
        (("gate", "rubbish/brake"), "no worker 'rubbish' runs on this machine"),
        (("intent", "pause rubbish"), "no operator asked for “pause rubbish” here"),
    ],
)
def test_what_is_not_there_is_one_sentence(held: Routes, words: tuple[str, str], sentence: str) -> None:
    result = held.holdfast("explain", *words)
    assert result.exit_code in (1, 2)
    assert sentence in result.output


def test_every_listing_is_yaml_too(held: Routes) -> None:
    shown = held.holdfast("get", "workers", "-o", "yaml")
    assert shown.output.startswith("- daemon: lab\n  name: ")
    status = held.holdfast("status", "-o", "yaml").stdout
    assert status.startswith("exit_code: 1\nproblems:\n")


def test_top_shows_every_process_of_a_daemon(held: Routes) -> None:
    rows = json.loads(held.holdfast("top", "--sample", "0.2", "-o", "json").stdout)
    assert {"lab/supervisor", "lab/routes"} <= {one["worker"] for one in rows}
    assert all(one["memory_bytes"] > 2**20 for one in rows)


def test_without_a_daemon_it_says_which(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from holdfast.cli import main

    result = CliRunner().invoke(main, ["explain", "worker", "syncer", "--runtime", str(tmp_path)])
    assert result.exit_code == 3
    assert "start one with holdfast lab up" in result.output


def test_a_worker_of_several_servers_is_the_leaders() -> None:
    servers = [daemon(worker("syncer"), worker("elector"), role=name) for name in ("ctl-1", "ctl-2")]
    view = StatusView(servers, servers=[LEADS])
    assert _chosen(view, "syncer") == (LEADS.name, "syncer")
    with pytest.raises(click.ClickException, match="elector is ambiguous here: name one of ctl-1/elector, ctl-2/elec"):
        _chosen(view, "elector")
