"""Pauses on the status page: what, who, why and until when, each once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.cli.status.page import exit_code, render
from holdfast.cli.status.view import StatusView
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import FLEET, Scope, ScopeKind
from holdfast.runtime.daemon.report import DaemonReport

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


def test_a_balancer_that_serves_from_a_file_is_named_only_while_the_fleet_is_paused() -> None:
    sentence = "lb-1             serves from a file, so the pause of the fleet does not reach it"
    assert sentence in render(StatusView(SERVER, intents=[FOR_AN_HOUR], unreached=["lb-1"]), NOW)
    assert sentence not in render(StatusView(SERVER, unreached=["lb-1"]), NOW)
