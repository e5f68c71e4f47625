"""Writes into an inventory that the fence does not cover: the term is confirmed first, and one row may be refused."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import pytest

from holdfast.inventory.api import Fence
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint_status import EndpointState
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
