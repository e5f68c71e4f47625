"""A paused frontend stays as it is programmed until it is resumed or the pause expires."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.balancer.commands.control import BalancerCommands
from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.services import from_store as catalog
from holdfast.cli.daemons.balancer import render
from holdfast.cli.explain.balancer import frontend as explained
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog, history
from holdfast.runtime.intents.store import FileIntents
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.paths import RolePaths
from holdfast.testing import World, simulate
from tests.balancer.harness import BalancerHarness, configuration, simple

ADA = Who(1000, 1, "ada")
BOTH, ONE_LEFT = {"b1": 100, "b2": 100}, {"b1": 0, "b2": 100}


class Operator:
    """Somebody at the control socket of a balancer with two frontends, f1 and f2, of the same two backends."""

    def __init__(self, site: BalancerHarness, folder: Path) -> None:
        self.site = site
        self._folder = folder
        self.start()

    def start(self) -> None:
        """The balancer starts, also again."""
        self.site.start(simple(1, 2, frontends=2))
        clock, folder = self.site.node.clock, self._folder
        intents = FileIntents(RolePaths("balancer", folder, folder), "vips", clock)
        decisions = DecisionLog(self._folder / "decisions", "balancer.vips")
        self._commands = BalancerCommands(
            self.site.reconciler, intents, Context(clock, Vitals(clock), decisions, WorkerMetrics())
        )
        self._commands.apply_intents()

    async def __call__(self, do: str, name: str = "f1", **args: object) -> str:
        request = Request("frontend", {"do": do, "name": name, **args})
        return str(await self._commands.handlers()["frontend"](request, ADA))

    def explain(self) -> str:
        view = BalancerViews(self.site.reconciler, self.site.node.clock.now())
        return "\n".join(explained(view.explain_frontend(self.site.reconciler.balancer.services.frontends["f1"])))

    def status(self) -> str:
        return render(BalancerViews(self.site.reconciler, self.site.node.clock.now()).status())


def play(story: Callable[[Operator], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def scenario(world: World) -> None:
        ask = Operator(BalancerHarness(world.node("lb"), folder / "log"), folder)
        await asyncio.sleep(40)
        await story(ask)

    simulate(1, scenario)


def test_only_the_paused_frontend_stays_as_it_is_and_it_follows_when_resumed(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        said = await ask("pause", reason="migration")
        assert said == "f1 stays as it is programmed now, whatever its backends do"
        ask.site.truth.down = {"b1"}
        await asyncio.sleep(10)
        assert (ask.site.weights(1), ask.site.weights(2)) == (BOTH, ONE_LEFT)
        assert await ask("resume") == "f1 follows its backends again"
        await asyncio.sleep(2)
        assert ask.site.weights(1) == ONE_LEFT

    play(story, tmp_path)


def test_a_pause_expires(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("pause", reason="migration", **{"for": "60s"})
        ask.site.truth.down = {"b1"}
        await asyncio.sleep(50)
        assert ask.site.weights(1) == BOTH
        await asyncio.sleep(15)
        assert ask.site.weights(1) == ONE_LEFT

    play(story, tmp_path)


def test_a_pause_survives_a_restart(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("pause", reason="migration")
        ask.site.node.kill()
        ask.site.truth.down = {"b1"}
        ask.start()
        await asyncio.sleep(40)
        assert (ask.site.weights(1), ask.site.weights(2)) == (BOTH, ONE_LEFT)

    play(story, tmp_path)


def test_status_and_explain_show_who_paused_it_why_and_how_to_resume(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("pause", reason="migration")
        ask.site.truth.down = {"b1"}
        await asyncio.sleep(10)
        assert "up, paused by ada: “migration”" in ask.status()
        shown = ask.explain()
        assert "INTENT      paused by ada: “migration”\n            To release: holdfast resume frontend f1" in shown
        assert "held by intent: ada: “migration”: an operator paused it" in shown

    play(story, tmp_path)


def test_the_history_shows_who_paused_and_resumed_it(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("pause", reason="migration")
        await ask("resume")

    play(story, tmp_path)
    shown = [one.sentence for one in history(tmp_path / "decisions", key="frontend/f1")]
    assert shown == [
        "ada: f1 stays as it is programmed now, whatever its backends do: “migration”",
        "ada: f1 follows its backends again",
    ]


@pytest.mark.parametrize(
    ("do", "name", "args", "sentence"),
    [
        ("pause", "f9", {"reason": "x"}, "there is no frontend 'f9'; there are 2: holdfast balancer status"),
        ("pause", "f1", {}, "a reason is needed"),
        ("resume", "f1", {}, "frontend 'f1' is not paused; paused are: none"),
        ("disable", "f1", {"reason": "x"}, "'disable' is not a command for a frontend"),
    ],
)
def test_invalid_commands_are_declined(
    tmp_path: Path, do: str, name: str, args: dict[str, object], sentence: str
) -> None:
    async def story(ask: Operator) -> None:
        with pytest.raises(Declined, match=sentence):
            await ask(do, name, **args)

    play(story, tmp_path)


def test_a_pause_in_the_store_takes_effect() -> None:
    scope, now = Scope(ScopeKind.FRONTEND, "f1"), datetime(2026, 1, 1, tzinfo=UTC)
    kept = Intent(what=IntentKind.PAUSE, scope=scope, who="ada", why="migration", since=now)
    assert list(catalog.intents({kept.name: kept}, configuration("{}"), catalog.FleetAddresses(), now)) == [kept]


def test_a_backend_that_left_while_the_frontend_is_paused_is_shown_as_long_as_it_gets_flows(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("pause", reason="a move")
        ask.site.reload(simple(1, frontends=2))
        await asyncio.sleep(5)
        assert f"  leaving{'':<9} {'':<16} {'10.0.0.2:80':<32} weight 100 → –\n" in ask.status()
        assert "LEAVING     10.0.0.2:80, no longer configured, programmed 100" in ask.explain()
        await ask("resume")
        await asyncio.sleep(5)
        assert "10.0.0.2" not in ask.status() + ask.explain()

    play(story, tmp_path)
