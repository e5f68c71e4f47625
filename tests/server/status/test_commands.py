"""Commands of a status worker: allow a loss, explain a status, list endpoints without an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.root import Config
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.etcd import server_intents
from holdfast.runtime.paths import RolePaths
from holdfast.server.status.commands import StatusCommands, view
from holdfast.server.status.term import StatusTerm
from holdfast.testing import FakeStore
from tests.inventory.harness import endpoint, host
from tests.server.harness import StatusHarness, Working, agent_key, status_harness

ALICE = Who(1_000, 77, "alice")
_THIRTY = seconds(30)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        yield made


def offered(term: StatusTerm[Any, Any], here: StatusHarness, folder: Path) -> Worker:
    """A worker with the commands of that term on its socket."""
    paths = RolePaths("server", folder / "run", folder / "state")
    paths.prepare()
    name = term.rules.name
    board = Board.create(paths.board, ["supervisor", name])
    worker = Worker(Spec(name, ""), "server", paths, Config(), here.clock, board)
    scope = Scope(ScopeKind.WORKER, name)
    intents = server_intents(FakeStore().client(), term.rules.region, here.clock, paths.state, scope)
    applied = AppliedIntents(worker.context, term.reconciler, term.pause, intents.all)
    worker.handlers |= StatusCommands(worker, term, applied, intents).handlers()
    return worker


async def asked(worker: Worker, do: str, **args: object) -> Any:
    return await worker.handlers[do](Request(do, args), ALICE)


async def lose_ten(here: StatusHarness, working: Working[Any, Any]) -> None:
    for number in range(1, 21):
        await here.report(f"r{number}")
    await working.turn()
    for number in range(1, 11):
        await here.silence(f"r{number}")
    await working.turn()


def test_an_operator_lets_a_loss_through_and_it_is_remembered_who_did(here: StatusHarness, tmp_path: Path) -> None:
    here.editor.change([host(number) for number in range(1, 21)], who="alice")

    async def scenario() -> tuple[Any, Any, list[bool]]:
        async with here.agents() as working:
            worker = offered(working.term, here, tmp_path)
            await lose_ten(here, working)
            held = await asked(worker, "held")
            said = await asked(worker, "allow", reason="rack 12 burnt down", shown=10, seal=held["seal"])
            await working.turn()  # finds the gate open
            await working.turn()
            worker.decisions.close()
            return held, said, [working.memory[agent_key(f"r{number}")].alive for number in range(1, 11)]

    held, said, alive = asyncio.run(scenario())
    assert held["gates"] == {"mass_loss": 10}
    assert said == "10 agents are declared lost"
    assert not any(alive)


def test_only_what_was_shown_is_let_through(here: StatusHarness, tmp_path: Path) -> None:
    here.editor.change([host(number) for number in range(1, 21)], who="alice")

    async def scenario() -> None:
        async with here.agents() as working:
            worker = offered(working.term, here, tmp_path)
            with pytest.raises(Declined, match="holds nothing"):
                await asked(worker, "allow", reason="because")
            await lose_ten(here, working)
            with pytest.raises(Declined, match="not the ones that were shown"):
                await asked(worker, "allow", reason="because", seal="another")
            with pytest.raises(Declined, match="use --once"):
                await asked(worker, "allow", reason="because", **{"for": "30m"})

    asyncio.run(scenario())


def test_a_status_is_explained_by_what_it_is_made_of(here: StatusHarness, tmp_path: Path) -> None:
    here.editor.change([host(1), endpoint(1)], who="alice")

    async def scenario() -> Any:
        await here.report("r1")
        async with here.endpoints() as working:
            worker = offered(working.term, here, tmp_path)
            await here.say(1, EndpointState.ERROR)
            await working.turn()
            with pytest.raises(Declined, match="there is no status of"):
                await asked(worker, "explain", name="holdfast-w9-eth0")
            return await asked(worker, "explain", name="holdfast-w1-eth0")

    (told,) = asyncio.run(scenario())
    assert told["seen"] == "ERROR"
    assert told["report"] == '{"status":"error"}'
    assert (told["host"], told["agent_alive"], told["outstanding"]) == ("r1", True, [])
    assert told["revision"] > 0


def test_endpoints_on_a_host_without_an_agent_are_named(here: StatusHarness, tmp_path: Path) -> None:
    here.editor.change([host(1), endpoint(1), endpoint(2)], who="alice")

    async def scenario() -> Any:
        async with here.endpoints() as working:
            worker = offered(working.term, here, tmp_path)
            await working.turn()
            return await asked(worker, "orphans")

    assert asyncio.run(scenario()) == {
        "hosts": {"r1": 2},
        "total": 2,
        "endpoints": ["holdfast-w1-eth0 on r1", "holdfast-w2-eth0 on r1"],
    }


def test_the_view_names_silent_hosts_with_since_when_and_clocks_that_are_off(here: StatusHarness) -> None:
    here.editor.change([host(1), host(2), host(3)], who="alice")

    async def scenario() -> dict[str, Any]:
        async with here.agents() as working:
            await working.turn()
            await here.report("r1")
            for _ in range(3):
                await here.report("r2", ago=-41)
                await working.turn()
                here.clock.advance(_THIRTY)
            await here.silence("r1")
            await working.turn()
            here.clock.advance(_THIRTY)
            return view(working.term)

    seen = asyncio.run(scenario())
    assert seen["states"] == {"alive": 1, "silent": 2}
    assert [(one["host"], one["since_s"]) for one in seen["silent"]] == [("r1", 30.0)]
    assert seen["clock_off"] == [{"host": "r2", "by_s": 41.0}]
