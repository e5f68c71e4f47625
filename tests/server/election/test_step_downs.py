"""Step-downs that an operator asks for on the machine of a server that does not lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.model.base.time import seconds
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.control.step_down_request import STEP_DOWN_REQUEST, StepDownRequest
from holdfast.runtime.control import Declined, Request, Who
from holdfast.server.election.machine import LossReason
from holdfast.server.election.step_downs import StepDowns
from holdfast.store.api import Put
from holdfast.testing import World, simulate
from tests.server.election.test_elector import Duo, leads
from tests.sim.servers import REGION, SimServer

AT = datetime(2026, 11, 19, tzinfo=UTC)
ALICE = Who(uid=1000, pid=7, name="alice")


def asked(request: Request, who: Who) -> Intent:
    scope = Scope(ScopeKind.SERVER, "any")
    return Intent(what=IntentKind.PAUSE, scope=scope, who=who.name, why=request.args["reason"], since=AT)


class Asked(Duo):
    """Both servers take requests; `recorded` has what each writes to its history."""

    async def begin(self) -> None:
        await super().begin()
        self.recorded: list[tuple[str, str, str]] = []
        self.store = self.world.node("operator").store()
        self.step_downs = {server.name: self._take_requests(server) for server in (self.a, self.b)}
        self.tasks = [asyncio.create_task(one.run()) for one in self.step_downs.values()]

    def _take_requests(self, server: SimServer) -> StepDowns:
        assert server.elector is not None
        assert server.registrar is not None

        def record(what: str, intent: Intent) -> None:
            self.recorded.append((server.name, intent.who, what))

        return StepDowns(
            self.store,
            REGION,
            server.name,
            server.elector,
            server.registrar,
            asked=asked,
            record=record,
            rest=seconds(30),
        )

    async def ask(self, server: SimServer, to: str = "") -> str:
        command = self.step_downs[server.name].handlers()["step-down-elsewhere"]
        return str(await command(Request("step-down-elsewhere", {"reason": "kernel update", "to": to}), ALICE))

    @property
    def term(self) -> int:
        assert self.a.elector is not None
        return self.a.elector.last_term


def story(tell: Callable[[Asked], Coroutine[Any, Any, None]]) -> None:
    async def scenario(world: World) -> None:
        two = Asked(world)
        await two.begin()
        await tell(two)
        for task in two.tasks:
            task.cancel()

    for seed in range(3):
        simulate(seed, scenario)


def test_the_leader_steps_down_when_it_is_asked_through_a_follower() -> None:
    async def tell(two: Asked) -> None:
        assert await two.ask(two.b, "b") == "a is asked to step down; b takes over"
        await two.led_by(two.b, within=3)
        assert two.recorded == [
            ("b", "alice", "have a step down"),
            ("a", "alice (through the store)", "step down for b"),
        ]
        await asyncio.sleep(30)
        assert leads(two.b), "it was carried out once"
        assert two.history() == [("a", LossReason.STEPPED_DOWN.value), ("b", "")]

    story(tell)


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("a", "a keeps the leadership: a leads already"),
        ("c", "a keeps the leadership: no other server is called c; there are: b"),
    ],
)
def test_the_server_that_is_asked_refuses_what_cannot_be_done(to: str, why: str) -> None:
    async def tell(two: Asked) -> None:
        with pytest.raises(Declined, match=why):
            await two.ask(two.b, to)
        await asyncio.sleep(5)
        assert leads(two.a)
        assert not two.recorded

    story(tell)


def test_a_request_is_refused_while_the_server_that_is_asked_cannot_lead_itself() -> None:
    async def tell(two: Asked) -> None:
        two.b.has_database = lambda: False
        await asyncio.sleep(10)
        with pytest.raises(Declined, match=r"no other server can take over \(b: syncer waiting: database \(trial\)\)"):
            await two.ask(two.b)

    story(tell)


def test_the_leader_checks_again_and_keeps_the_leadership_if_nobody_can_take_over_any_more() -> None:
    async def tell(two: Asked) -> None:
        two.b.has_database = lambda: False
        await asyncio.sleep(10)
        await two.store.txn([], [Put(KEY, STEP_DOWN_REQUEST.encode(request(two.term)))])
        await asyncio.sleep(10)
        assert leads(two.a)
        assert two.world.store.keys.get(KEY) is None

    story(tell)


def test_a_request_to_end_another_term_ends_none() -> None:
    async def tell(two: Asked) -> None:
        await two.store.txn([], [Put(KEY, STEP_DOWN_REQUEST.encode(request(two.term + 1)))])
        await asyncio.sleep(10)
        assert leads(two.a)
        assert two.world.store.keys.get(KEY) is None, "no later leader finds it"

    story(tell)


KEY = STEP_DOWN_REQUEST.key(REGION, "step-down")


def request(term: int) -> StepDownRequest:
    return StepDownRequest(term, "", "alice", "kernel update", AT)
