"""Status while the identity of the store is in doubt: a key that is gone proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.reconcile import Owned
from holdfast.server.identity.gate import IdentityCell
from holdfast.server.identity.verdict import REPORTS_RETURN
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, host
from tests.server.harness import StatusHarness, status_harness, status_key


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        yield made


async def reported(here: StatusHarness) -> None:
    here.editor.change([host(1), *map(endpoint, range(3))], who="alice")
    await here.report("r1")
    for number in range(3):
        await here.say(number, EndpointState.UP)


@fault("C61", without="holdfast.server.identity.gate:StatusIdentityGate.judge", sees=(AssertionError, "now == before"))
def test_C61_live_endpoints_are_not_down_because_a_restored_store_lacks_their_keys(here: StatusHarness) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], dict[bytes, bytes], str]:
        await reported(here)
        async with here.endpoints() as working:
            await working.turn()
            before = here.rows("endpoint")
            shown = here.identity.read()
            assert shown is not None
            here.identity.write(IdentityCell(shown.term, shown.epoch, "STORE_RESTORED"))
            for number in range(3):
                await here.world.delete(status_key(number))
            await working.turn()
            return before, here.rows("endpoint"), working.term.context.vitals.state

    before, now, state = asyncio.run(scenario())
    assert len(before) == 3
    assert now == before
    assert state == "held: identity"


@fault(
    "C61",
    without="holdfast.server.identity.gate:StatusIdentityGate._is_judged",
    returns=True,
    sees=(AssertionError, r'here.rows\("endpoint"\) == before'),
)
def test_C61_a_new_list_waits_until_the_syncer_has_judged_the_store_that_answers_now(here: StatusHarness) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], dict[bytes, bytes], dict[bytes, bytes]]:
        copied = here.fake.revision
        await reported(here)
        async with here.endpoints() as working:
            await working.turn()
            before = here.rows("endpoint")
            shown = here.identity.read()
            assert shown is not None
            here.clock.advance(seconds(1))
            lists = working.term.mirror.lists
            here.fake.restore(copied)
            while working.term.mirror.lists == lists:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await working.turn()
            held = here.rows("endpoint")
            here.clock.advance(seconds(1))
            here.identity.write(IdentityCell(shown.term, shown.epoch, read=here.clock.now()))
            here.clock.advance(working.term.reconciler._timings.recheck)
            await working.turn()
            assert here.rows("endpoint") == before, "their agent may write them again"
            here.clock.advance(REPORTS_RETURN)
            await working.turn()
            return before, held, here.rows("endpoint")

    before, held, judged = asyncio.run(scenario())
    assert len(before) == 3
    assert held == before
    assert judged != before


@fault(
    "C61",
    without="holdfast.server.identity.gate:StatusIdentityGate._may_return",
    returns=False,
    sees=(AssertionError, r'here.rows\("endpoint"\) == before'),
)
def test_C61_a_report_that_an_agent_has_not_written_again_yet_is_not_taken_for_down(here: StatusHarness) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        await reported(here)
        async with here.endpoints() as working:
            await working.turn()
            before = here.rows("endpoint")
            shown = here.identity.read()
            assert shown is not None
            here.identity.write(IdentityCell(shown.term, shown.epoch, "FILLING"))
            await here.world.delete(status_key(1))
            await working.turn()
            here.identity.write(shown)  # the operator was quicker than the agent
            here.clock.advance(working.term.reconciler._timings.recheck)
            await working.turn()
            assert here.rows("endpoint") == before
            await here.say(1, EndpointState.UP)
            here.clock.advance(REPORTS_RETURN)
            await working.turn()
            return before, here.rows("endpoint")

    before, now = asyncio.run(scenario())
    assert now == before


@fault(
    "C61",
    without="holdfast.server.identity.gate:StatusIdentityGate._may_return",
    returns=False,
    sees=(AssertionError, "now == before"),
)
def test_C61_a_report_that_comes_while_its_row_is_compared_is_not_taken_for_down(here: StatusHarness) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        await reported(here)
        async with here.endpoints() as working:
            await working.turn()
            before, term = here.rows("endpoint"), working.term
            shown = here.identity.read()
            assert shown is not None
            here.identity.write(IdentityCell(shown.term, shown.epoch, "FILLING"))
            await here.world.delete(status_key(1))
            await working.turn()
            here.identity.write(shown)
            get = term.source.get

            async def agent_is_quick(keys: Collection[bytes]) -> Mapping[bytes, Owned[Any]]:
                found = await get(keys)
                await here.say(1, EndpointState.UP)
                while status_key(1) not in term.mirror.objects:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                return found

            with patch.object(term.source, "get", agent_is_quick):
                term.reconciler.dirty.mark([status_key(1)])
                await term.reconciler.turn()
            return before, here.rows("endpoint")

    before, now = asyncio.run(scenario())
    assert now == before


def test_what_was_held_is_written_when_the_verdict_ends_within_the_epoch(here: StatusHarness) -> None:
    async def scenario() -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
        await reported(here)
        async with here.endpoints() as working:
            await working.turn()
            before = here.rows("endpoint")
            shown = here.identity.read()
            assert shown is not None
            here.identity.write(IdentityCell(shown.term, shown.epoch, "FILLING"))
            await here.say(1, EndpointState.ERROR)
            await working.turn()
            assert here.rows("endpoint") == before
            here.identity.write(shown)
            here.clock.advance(working.term.reconciler._timings.recheck)
            await working.turn()
            return before, here.rows("endpoint")

    before, now = asyncio.run(scenario())
    assert now != before


def test_a_fence_of_another_epoch_writes_nothing(here: StatusHarness) -> None:
    async def scenario() -> dict[bytes, bytes]:
        await reported(here)
        async with here.endpoints() as working:
            shown = here.identity.read()
            assert shown is not None
            here.identity.write(IdentityCell(shown.term, shown.epoch + 1))
            await working.turn()
            return here.rows("endpoint")

    assert asyncio.run(scenario()) == {}
