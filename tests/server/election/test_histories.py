"""Decisions of other servers through the store: what fits into an answer, and what is left behind without one."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from holdfast.model.base.region import Region
from holdfast.model.control.decision import Decision
from holdfast.model.control.history_request import HISTORY_ANSWER, HISTORY_REQUEST
from holdfast.model.control.server import SERVER, Server
from holdfast.runtime.daemon.other_histories import ServerHistory, other_histories
from holdfast.server.election.histories import fitting
from holdfast.store.api import prefix_end
from holdfast.testing import World, simulate

REGION = Region("r")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def decision(number: int) -> Decision:
    return Decision(NOW, "syncer", "delete", f"k{number}", "applied", "deleted")


def test_the_newest_decisions_that_fit_are_the_answer() -> None:
    found = [decision(number) for number in range(10)]
    size = len(msgspec.json.encode(found[0])) + 1
    assert fitting(found).decisions == tuple(found)
    assert fitting(found, largest=3 * size).decisions == tuple(found[7:])
    assert fitting(found, largest=3 * size).omitted == 7
    assert fitting([]).decisions == ()


def test_a_server_that_does_not_answer_is_told_apart_and_the_request_is_withdrawn() -> None:
    async def story(world: World) -> None:
        store = world.node("h1").store()
        for name in ("a", "b"):
            server = Server(host=name, pid=1, boot_id="", pid_namespace="", version="1", since=NOW, database=True)
            await store.put(SERVER.key(REGION, name), SERVER.encode(server))
        told = await other_histories(store, REGION, known=["a"], key=None, last=5)
        assert told == [ServerHistory("b", None)]
        for kind in (HISTORY_REQUEST, HISTORY_ANSWER):
            assert not world.store.keys.range(kind.prefix(REGION), prefix_end(kind.prefix(REGION)))

    simulate(1, story)


def test_a_server_that_is_alone_asks_nobody() -> None:
    async def story(world: World) -> None:
        before = world.store.revision
        assert await other_histories(world.node("h1").store(), REGION, known=["a"], key=None, last=5) == []
        assert world.store.revision == before

    simulate(1, story)
