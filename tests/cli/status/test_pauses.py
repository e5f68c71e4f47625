"""Pauses on the status page: what, who, why and until when, each once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.cli.change.intents import KINDS
from holdfast.cli.status.page import exit_code, render
from holdfast.cli.status.view import StatusView
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import FLEET, Scope, ScopeKind
from holdfast.runtime.daemon.report import DaemonReport, WorkerReport

NOW = datetime(2026, 3, 1, 3, 7, 9, tzinfo=UTC)
SERVER = [DaemonReport("server", "1.2.3", 4_711, 0.6, [])]
FOR_AN_HOUR = Intent(
    what=IntentKind.PAUSE, scope=FLEET, who="ada", why="moving racks", since=NOW, until=NOW + timedelta(hours=1)
)
FOR_EVER = Intent(what=IntentKind.PAUSE, scope=Scope(ScopeKind.HOST, "r1"), who="bob", why="new disk", since=NOW)
HELD = {"gate": "intent", "opens": "holdfast resume fleet, or the end of the pause", "reason": "x", "since_s": 3.0}


def test_a_pause_with_an_end_needs_no_action_and_is_shown_once_for_all_workers() -> None:
    view = StatusView(SERVER, held={"s/syncer": [HELD, HELD], "h/peers": [HELD]}, intents=[FOR_AN_HOUR])
    shown = render(view, NOW)
    assert exit_code(view) == 0
    assert (
        "NEEDS YOU  0        handled by itself  1\n"
        " · fleet            paused by ada until 04:07:09Z: “moving racks”; 3 changes wait\n"
        "                    To release: holdfast resume fleet\n"
        "\n"
        "PAUSED   fleet   until 04:07:09Z   by ada: “moving racks”\n"
    ) in shown


def test_one_without_an_end_needs_action() -> None:
    view = StatusView(SERVER, intents=[FOR_AN_HOUR, FOR_EVER])
    assert exit_code(view) == 1
    shown = render(view, NOW)
    assert " 1 host r1          paused by bob: “new disk”; it has no end\n" in shown
    assert (
        "PAUSED   fleet     until 04:07:09Z   by ada: “moving racks”\n         host r1   no end   by bob: “new disk”\n"
    ) in shown


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "server"])
def test_no_kind_of_pause_without_an_end_is_green_or_silent(kind: str) -> None:
    scope = FLEET if kind == "fleet" else Scope(ScopeKind(kind), "web-1")
    view = StatusView(
        SERVER, intents=[Intent(what=IntentKind.PAUSE, scope=scope, who="bob", why="new disk", since=NOW)]
    )
    assert exit_code(view) == 1
    assert f"PAUSED   {scope}   no end   by bob: “new disk”\n" in render(view, NOW)


@pytest.mark.parametrize(
    ("pause", "known"),
    [
        ([], False),
        ([Scope(ScopeKind.BACKEND, "web-1")], False),
        ([Scope(ScopeKind.WORKER, "agent-status")], False),
        ([Scope(ScopeKind.WORKER, "syncer")], True),
        ([FLEET], True),
    ],
    ids=str,
)
def test_a_paused_worker_whose_pause_is_not_known_is_not_green(pause: list[Scope], known: bool) -> None:
    worker = WorkerReport("syncer", 4_712, "running", "ok", "paused", 0.1, 0, 0.0, 0, False)
    intents = [msgspec.structs.replace(FOR_AN_HOUR, scope=scope) for scope in pause]
    view = StatusView([DaemonReport("server", "1.2.3", 4_711, 0.6, [worker])], intents=intents)
    assert exit_code(view) == (0 if known else 3)
    assert ("paused, and it does not answer by whom and until when" in render(view, NOW)) is not known


def test_a_long_reason_stays_within_the_terminal() -> None:
    long = Intent(what=IntentKind.PAUSE, scope=FLEET, who="ada", why="moving racks " * 8, since=NOW)
    page = render(StatusView(SERVER, intents=[long]), NOW, 80)
    assert max(map(len, page.splitlines())) <= 80
    assert "\n                 racks moving" in page


def test_a_balancer_that_serves_from_a_file_is_named_only_while_the_fleet_is_paused() -> None:
    sentence = "lb-1             serves from a file, so the pause of the fleet does not reach it"
    assert sentence in render(StatusView(SERVER, intents=[FOR_AN_HOUR], unreached=["lb-1"]), NOW)
    assert sentence not in render(StatusView(SERVER, unreached=["lb-1"]), NOW)
