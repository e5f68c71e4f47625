"""Writes into an inventory that the fence does not cover: the term is confirmed first, and one row may be refused."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from holdfast.inventory.api import Fence
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.time import Duration, seconds
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.reconcile import Away
from holdfast.store.api import Deposed
from tests.inventory.harness import endpoint, host
from tests.server.harness import StatusHarness, status_harness, status_key

ACTIVE = b'{"status":"ACTIVE"}'


class RefusingObserved(SqlObserved):
    refuses: Collection[bytes] = ()

    def write(
        self, fence: Fence, kind: str, rows: Mapping[bytes, Sequence[bytes]], gone: Collection[bytes], at: datetime
    ) -> Mapping[bytes, str]:
        kept = {doc: [key for key in keys if key not in self.refuses] for doc, keys in rows.items()}
        super().write(fence, kind, kept, gone, at)
        return {key: "Neutron refused it" for keys in rows.values() for key in keys if key in self.refuses}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        made.editor.change([host(1), endpoint(1, on="r1"), endpoint(2, on="r1")], who="alice")
        yield made


async def both_up(here: StatusHarness) -> None:
    await here.report("r1")
    for number in (1, 2):
        await here.say(number, EndpointState.UP)


def test_a_refused_row_fails_alone_and_is_tried_again(here: StatusHarness) -> None:
    here.observed = observed = RefusingObserved(here.engine)
    observed.refuses = {status_key(1)}

    async def scenario() -> None:
        async with here.endpoints() as working:
            await both_up(here)
            await working.turn()
            assert here.rows("endpoint") == {status_key(2): ACTIVE}
            assert set(working.memory) == {status_key(2)}
            assert working.term.backlog() == 1

            observed.refuses = ()
            here.clock.advance(seconds(60))
            await working.turn()
            assert here.rows("endpoint") == {status_key(1): ACTIVE, status_key(2): ACTIVE}

    asyncio.run(scenario())


def test_nothing_is_written_when_the_term_cannot_be_confirmed(here: StatusHarness) -> None:
    async def depose() -> None:
        raise Deposed("term 7 is over")

    async def scenario() -> None:
        async with here.endpoints() as working:
            await both_up(here)
            working.term.target._confirm = depose
            with pytest.raises(Deposed):
                await working.turn()

    asyncio.run(scenario())
    assert here.rows("endpoint") == {}


def test_the_term_is_confirmed_before_every_transaction(here: StatusHarness) -> None:
    confirmed: list[int] = []

    async def scenario() -> None:
        async with here.endpoints() as working:

            async def confirm() -> None:
                confirmed.append(len(here.rows("endpoint")))

            await both_up(here)
            working.term.target._confirm = confirm
            working.term.target._size = type(working.term.target._size)(rows=1, most=1)
            await working.turn()

    asyncio.run(scenario())
    assert confirmed == [0, 1]


class AgingObserved(SqlObserved):
    """An inventory in which heartbeats age, as in Neutron."""

    renewed = 0

    @property
    def is_fenced(self) -> bool:
        return False

    def keep_fresh(self, fence: Fence, kind: str) -> None:
        self.renewed += 1


@pytest.mark.parametrize("error", [Deposed("term 7 is over"), Away("store", "no answer")])
def test_no_heartbeat_is_renewed_when_the_term_cannot_be_confirmed(here: StatusHarness, error: Exception) -> None:
    here.observed = observed = AgingObserved(here.engine)
    confirmed = asyncio.Event()

    async def refuse() -> None:
        confirmed.set()
        raise error

    async def scenario() -> None:
        async with here.agents() as working:
            await working.term.target.keep_fresh()
            assert observed.renewed == 1

            working.term.target._confirm = refuse
            with pytest.raises(type(error)):
                await working.term.target.keep_fresh()

    asyncio.run(scenario())
    assert confirmed.is_set()
    assert observed.renewed == 1


class QuietWaker:
    """An inventory in which nothing changes."""

    async def wait(self, most: Duration) -> None:
        await asyncio.sleep(3600)

    async def close(self) -> None:
        return


def test_a_term_renews_heartbeats_and_ends_when_it_is_deposed(
    here: StatusHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.observed = observed = AgingObserved(here.engine)
    monkeypatch.setattr("holdfast.server.status.term.KEEP_FRESH_EVERY", Duration(milliseconds=1))

    async def depose() -> None:
        if observed.renewed == 2:
            raise Deposed("term 7 is over")

    async def scenario() -> None:
        async with here.agents() as working:
            working.term.target._confirm = depose
            working.term._waker = QuietWaker()
            with pytest.raises(Deposed):
                await working.term.run(asyncio.Event())

    asyncio.run(scenario())
    assert observed.renewed == 2
