"""Commands on backends: their effects, refusals, and storage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.balancer.commands.control import BalancerCommands
from holdfast.balancer.commands.views import BalancerViews
from holdfast.balancer.health import HealthState
from holdfast.cli.explain import balancer as explained
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.model.control.intent import IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog, history
from holdfast.runtime.intents.store import FileIntents
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.paths import RolePaths
from holdfast.testing import World, simulate
from holdfast.testing.fault import fault
from tests.balancer.harness import BalancerHarness, configuration, simple
from tests.balancer.test_reconciler import VIP

ADA = Who(1000, 1, "ada")


class Operator:
    """Somebody at the control socket."""

    def __init__(self, site: BalancerHarness, folder: Path) -> None:
        self.site = site
        clock = site.node.clock
        self.intents = FileIntents(RolePaths("balancer", folder, folder), "vips", clock)
        decisions = DecisionLog(folder / "decisions", "balancer.vips")
        self.commands = BalancerCommands(
            site.reconciler, self.intents, Context(clock, Vitals(clock), decisions, WorkerMetrics())
        )
        self.commands.apply_intents()

    async def __call__(self, do: str, name: str, kind: str = "backend", **args: object) -> str:
        request = Request(kind, {"do": do, "name": name, **args})
        said = await self.commands.handlers()[kind](request, ADA)
        await asyncio.sleep(0.5)
        return str(said)

    async def refused(self, do: str, name: str, kind: str = "backend", **args: object) -> str:
        """Why it is not done; nothing, when it is done after all."""
        try:
            await self(do, name, kind, **args)
        except Declined as sentence:
            return str(sentence)
        return ""


Story = Callable[[Operator], Coroutine[Any, Any, None]]


def play(story: Story, folder: Path, frontends: int = 1, config: BalancerSettings | None = None) -> None:
    async def scenario(world: World) -> None:
        site = BalancerHarness(world.node("lb"), folder / "decisions")
        site.start(config or simple(1, 2, frontends=frontends))
        await asyncio.sleep(40)
        await story(Operator(site, folder))

    simulate(1, scenario)


def test_pause_and_resume(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        assert await ask("pause", "b1", reason="new disk") == "b1 gets no new flows; established flows continue"
        assert ask.site.weights() == {"b1": 0, "b2": 100}
        await ask("resume", "b1")
        assert ask.site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def test_disable_takes_the_place_of_pause_and_enable_ends_it(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("pause", "b1", reason="new disk")
        await ask("disable", "b1", reason="broken disk")
        assert [intent.what for intent in ask.intents.all()] == [IntentKind.DISABLE]
        await ask("enable", "b1")
        assert ask.intents.all() == ()
        assert ask.site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def test_an_operator_weight_overrides_the_configuration_until_it_is_reset(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        assert await ask("weight", "b1", weight=10, reason="canary") == "b1 has weight 10"
        assert ask.site.weights() == {"b1": 10, "b2": 100}
        assert await ask("weight", "b1") == "b1 has its configured weight again"
        assert ask.site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


@fault(
    "B10",
    without="holdfast.balancer.commands.control:BalancerCommands._check_possible",
    sees=(AssertionError, r'ask.refused\("pause"'),
)
def test_B10_pause_on_a_disabled_backend_is_refused_and_not_kept(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("disable", "b1", reason="broken disk")
        assert await ask.refused("pause", "b1", reason="oops") == "b1: a backend that is disabled cannot be paused"
        assert ask.site.reconciler.balancer.health["b1"].state is HealthState.DISABLED
        assert [intent.what for intent in ask.intents.all()] == [IntentKind.DISABLE]

    play(story, tmp_path)


@pytest.mark.parametrize(
    ("do", "name", "args", "said"),
    [
        ("pause", "b1", {}, "a reason is needed"),
        ("pause", "b1", {"reason": " "}, "a reason is needed"),
        ("pause", "b1", {"reason": "x", "for": "soon"}, "--for soon"),
        ("resume", "b1", {}, "b1: a backend that is up cannot be resumed"),
        ("enable", "b1", {}, "b1: a backend that is up cannot be enabled"),
        ("weight", "b1", {"reason": "x", "weight": 101}, "a weight is a whole number from 0 to 100"),
        ("weight", "b1", {"reason": "x", "weight": "a"}, "a weight is a whole number from 0 to 100"),
        ("pause", "b11", {"reason": "x"}, "there is no backend 'b11'; did you mean b1"),
        ("reboot", "b1", {}, "'reboot' is not a command for a backend"),
    ],
)
def test_invalid_commands_are_refused(tmp_path: Path, do: str, name: str, args: dict[str, Any], said: str) -> None:
    async def story(ask: Operator) -> None:
        assert (await ask.refused(do, name, **args)).startswith(said)
        assert ask.intents.all() == ()

    play(story, tmp_path)


def test_an_intent_expires(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        said = await ask("pause", "b1", reason="new disk", **{"for": "30s"})
        assert "until 00:01:10Z" in said
        await asyncio.sleep(40)
        ask.commands.apply_intents()
        ask.site.reconciler.reloaded()
        await asyncio.sleep(1)
        assert ask.site.weights() == {"b1": 100, "b2": 100}

    play(story, tmp_path)


def test_intents_survive_a_restart(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("disable", "b1", reason="broken disk")
        ask.site.node.kill()
        ask.site.dataplane.calls.clear()
        ask.site.start(simple(1, 2))
        Operator(ask.site, tmp_path)
        await asyncio.sleep(60)
        assert ask.site.dataplane.calls == []
        assert ask.site.weights() == {"b1": 0, "b2": 100}

    play(story, tmp_path)


def test_a_weight_in_one_frontend_goes_before_the_one_in_all(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        assert await ask("weight", "b1", weight=10, frontend="f2", reason="canary") == (
            "b1 has weight 10 in frontend f2"
        )
        assert (ask.site.weights(1), ask.site.weights(2)) == ({"b1": 100, "b2": 100}, {"b1": 10, "b2": 100})
        await ask("weight", "b1", weight=50, reason="old machine")
        assert (ask.site.weights(1)["b1"], ask.site.weights(2)["b1"]) == (50, 10)
        assert await ask("weight", "b1", frontend="f2") == "b1 has its configured weight again in frontend f2"
        assert (ask.site.weights(1)["b1"], ask.site.weights(2)["b1"]) == (50, 50)
        assert await ask.refused("weight", "b1", weight=1, frontend="f3", reason="x")
        assert ask.intents.all()[0].scope == Scope(ScopeKind.BACKEND, "b1")

    play(story, tmp_path, frontends=2)


def test_a_weight_in_one_frontend_is_shown_and_survives_a_restart(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("weight", "b1", weight=10, frontend="f2", reason="canary")
        site = ask.site
        site.node.kill()
        site.dataplane.calls.clear()
        site.start(simple(1, 2, frontends=2))
        Operator(site, tmp_path)
        await asyncio.sleep(60)
        assert site.dataplane.calls == []
        assert (site.weights(1)["b1"], site.weights(2)["b1"]) == (100, 10)
        view = BalancerViews(site.reconciler, site.node.clock.now())
        shown = view.explain_backend(site.reconciler.balancer.services.backends["b1"])
        assert [(one["frontend"], one["weight"], one["why"]) for one in shown["intents"]] == [("f2", 10, "canary")]
        assert "weight 10 in f2 by ada: “canary”" in "\n".join(explained.backend(shown))
        frontend = view.explain_frontend(site.reconciler.balancer.services.frontends["f2"])
        assert "weight 100, set to 10 by an operator, wanted now 10" in "\n".join(explained.frontend(frontend))

    play(story, tmp_path, frontends=2)


def pools(first: str, second: str = "{name: spare, backends: {b3: {}}}") -> BalancerSettings:
    """One frontend with two pools; b3 is in `spare`."""
    lines = [f"  b{n}: {{address: 10.0.0.{n}, port: 80, healthcheck: web}}" for n in (1, 2, 3, 4)]
    return configuration(
        "healthchecks: {web: {type: tcp, interval: 1s}}\nbackends:\n"
        + "\n".join(lines)
        + f"\nfrontends: {{www: {{address: 192.0.2.1, port: 80, pools: [{first}, {second}]}}}}"
    )


TWO = pools("{backends: {b1: {}, b2: {weight: 50}}}")
WAITING = msgspec.structs.replace(
    TWO, frontends={"www": msgspec.structs.replace(TWO.frontends["www"], fail_back_delay=timedelta(hours=1))}
)


def test_a_pool_of_weight_zero_hands_over_to_the_next_until_it_is_reset(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        site = ask.site
        assert site.weights() == {"b1": 100, "b2": 50, "b3": 0}
        flows = [n for n in range(50) if site.dataplane.connect(VIP, n)]
        said = await ask("weight", "0", "pool", frontend="www", weight=0, reason="new switch", **{"for": "1h"})
        assert said.startswith("www has weight 0 in pool 0 until ")
        assert site.weights() == {"b1": 0, "b2": 0, "b3": 100}
        assert all((VIP, n) in site.dataplane.flows for n in flows), "established flows continue"
        assert await ask("weight", "0", "pool", frontend="www") == "www has its configured weight again in pool 0"
        assert site.weights() == {"b1": 100, "b2": 50, "b3": 0}
        assert ask.intents.all() == ()

    play(story, tmp_path, config=WAITING)
    asked = [one.sentence for one in history(tmp_path / "decisions", "frontend/www") if one.outcome == "asked"]
    assert "“new switch”" in asked[-1] + asked[0]


def test_the_weight_of_a_pool_goes_before_that_of_a_backend_and_after_that_in_the_frontend(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("weight", "b1", weight=70, reason="old")
        await ask("weight", "0", "pool", frontend="www", weight=20, reason="tests")
        assert ask.site.weights() == {"b1": 20, "b2": 20, "b3": 0}
        await ask("weight", "b2", weight=5, frontend="www", reason="canary")
        assert ask.site.weights() == {"b1": 20, "b2": 5, "b3": 0}
        view = BalancerViews(ask.site.reconciler, ask.site.node.clock.now())
        services = ask.site.reconciler.balancer.services
        told = "\n".join(explained.backend(view.explain_backend(services.backends["b1"])))
        assert "weight 20 of pool 0 in www by ada: “tests”" in told
        assert "weight 70 by ada: “old”" in told
        assert "of pool" not in "\n".join(explained.backend(view.explain_backend(services.backends["b3"])))
        told = "\n".join(explained.frontend(view.explain_frontend(services.frontends["www"])))
        assert "weight 20 of pool 0 by ada: “tests”" in told
        assert "weight 5 of b2 by ada: “canary”" in told

    play(story, tmp_path, config=TWO)


def test_the_weight_of_a_pool_is_that_of_backends_that_join_it_and_survives_a_restart(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        site = ask.site
        await ask("weight", "1", "pool", frontend="www", weight=30, reason="tests")
        assert ask.intents.all()[0].scope == Scope.pool("www", "spare"), "a pool with a name is known by it"
        await ask("weight", "0", "pool", frontend="www", weight=0, reason="tests")
        assert site.weights() == {"b1": 0, "b2": 0, "b3": 30}
        wider = pools("{backends: {b1: {}}}", "{name: spare, backends: {b3: {}, b4: {}}}")
        site.reload(wider)
        await asyncio.sleep(3)
        assert site.weights() == {"b1": 0, "b3": 30, "b4": 30}
        site.node.kill()
        site.dataplane.calls.clear()
        site.start(wider)
        Operator(site, tmp_path)
        await asyncio.sleep(60)
        assert site.dataplane.calls == []

    play(story, tmp_path, config=TWO)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ({"name": "2", "weight": 0}, "frontend www has no pool '2'; its pools are: 0, spare"),
        ({"name": "spar", "weight": 0}, "frontend www has no pool 'spar'; its pools are: 0, spare"),
        ({"weight": 101}, "a weight is a whole number from 0 to 100"),
        ({"do": "pause"}, "'pause' is not a command for a pool; there is: weight"),
        ({"frontend": "ww", "weight": 0}, "there is no frontend 'ww'; did you mean www?"),
    ],
)
def test_invalid_weights_of_pools_are_refused(tmp_path: Path, args: dict[str, Any], said: str) -> None:
    async def story(ask: Operator) -> None:
        assert (
            await ask.refused(**{"do": "weight", "name": "0", "kind": "pool", "frontend": "www", "reason": "x", **args})
            == said
        )
        assert ask.intents.all() == ()

    play(story, tmp_path, config=TWO)


def test_an_unreadable_intent_file_stops_the_start(tmp_path: Path) -> None:
    path = tmp_path / "intents" / "balancer.vips.json"
    path.parent.mkdir()
    path.write_text("[{")
    with pytest.raises(RuntimeError, match="fix it, or delete it to drop all intents"):
        FileIntents(RolePaths("balancer", tmp_path, tmp_path), "vips", SystemClock())


def test_an_intent_is_stored_with_operator_and_reason(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("disable", "b1", reason="broken disk")

    play(story, tmp_path)
    asked = [one for one in history(tmp_path / "decisions", "backend/b1") if one.outcome == "asked"]
    assert [one.sentence.startswith("ada: b1 gets no new flows") for one in asked] == [True]
    assert "“broken disk”" in asked[0].sentence


def test_explain_shows_the_history_of_a_backend(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        await ask("disable", "b1", reason="broken disk")
        view = BalancerViews(ask.site.reconciler, ask.site.node.clock.now())
        shown = view.explain_backend(ask.site.reconciler.balancer.services.backends["b1"])
        assert shown["state"] == "disabled"
        assert shown["why"] == "ada: “broken disk”"
        assert [(one["old"], one["new"]) for one in shown["transitions"]] == [("unknown", "up"), ("up", "disabled")]
        assert shown["entries"][0]["programmed"] == shown["entries"][0]["wanted"] == 0

    play(story, tmp_path)


def test_the_plan_says_what_is_held_and_what_it_would_move(tmp_path: Path) -> None:
    async def story(ask: Operator) -> None:
        site = ask.site
        site.dataplane.refuse = lambda _change: "no room"
        await ask("pause", "b1", reason="new disk")
        plan = await BalancerViews(site.reconciler, site.node.clock.now()).plan()
        assert plan["total"] == 1
        assert 0.45 < plan["moves"][0]["share"] < 0.55

    play(story, tmp_path)
