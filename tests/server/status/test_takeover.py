"""A new leader compares page by page; changes meanwhile are judged against the known rows."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.changes import WantedObject
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.model.fleet.observed import EndpointSeen
from holdfast.store.mirror import gc_pause
from tests.inventory.harness import endpoint, endpoint_name, host
from tests.server.harness import StatusHarness, Working, status_harness, status_key

HOSTS = 100
PAGE = 25
ACTIVE = b'{"status":"ACTIVE"}'


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        numbers = range(1, HOSTS + 1)
        made.editor.change([*map(host, numbers), *(endpoint(one, on=f"r{one}") for one in numbers)], who="alice")
        yield made


def lost(here: StatusHarness) -> Callable[[], Awaitable[None]]:
    """Three of ten agents vanish, spread over all pages; what they said stays."""

    async def vanish() -> None:
        for number in range(1, HOSTS + 1):
            if number % 10 in (1, 4, 7):
                await here.silence(f"r{number}")

    return vanish


async def lead_after_all_were_active(here: StatusHarness) -> None:
    for number in range(1, HOSTS + 1):
        await here.report(f"r{number}")
        await here.say(number, EndpointState.UP, on=f"r{number}")
    async with here.endpoints() as working:
        await working.turn()
    assert set(here.rows("endpoint").values()) == {ACTIVE}


def during_the_first_page(working: Working[Any, EndpointSeen], thing: Callable[[], Awaitable[None]]) -> None:
    target, done = working.term.target, list[bool]()
    read = target.read

    async def reading(after: bytes | None) -> tuple[Sequence[Any], bytes | None]:
        page = await read(after)
        if not done:
            done.append(True)
            await thing()
            await working.receive()
            working.term.feed.inventory_changed()
        return page

    target.read = reading  # type: ignore[method-assign]


@pytest.mark.parametrize("when", ["before the takeover", "during its first page"])
def test_many_agents_that_vanish_around_a_takeover_are_held_together(here: StatusHarness, when: str) -> None:
    async def scenario() -> None:
        await lead_after_all_were_active(here)
        if when == "before the takeover":
            await lost(here)()
        async with here.endpoints() as working:
            working.term.target.page = PAGE
            if when != "before the takeover":
                during_the_first_page(working, lost(here))
            await working.turn()
            await working.turn()
            assert len(working.term.mass_loss.held) == 3 * HOSTS // 10
        assert set(here.rows("endpoint").values()) == {ACTIVE}

    asyncio.run(scenario())


def test_what_is_reported_while_a_new_leader_compares_is_written_between_two_pages(here: StatusHarness) -> None:
    async def news() -> None:
        await here.say(1, EndpointState.ERROR, on="r1")

    async def scenario() -> None:
        await lead_after_all_were_active(here)
        for number in range(1, HOSTS + 1):
            await here.say(number, EndpointState.DOWN, on=f"r{number}")
        async with here.endpoints() as working:
            working.term.target.page = PAGE
            during_the_first_page(working, news)
            await working.turn()

    asyncio.run(scenario())
    written = [one.key for one in here.decision_records() if one.op == "replace"]
    assert len(written) == HOSTS
    assert written.index("endpoint r1-holdfast-w1-eth0") <= PAGE, "it waited for the end of the pass"


def test_what_is_deleted_while_a_new_leader_compares_goes_at_once_and_is_not_counted(here: StatusHarness) -> None:
    async def gone() -> None:
        here.editor.change([WantedObject(ENDPOINT, endpoint_name(99))], who="bob")

    async def scenario() -> None:
        await lead_after_all_were_active(here)
        async with here.endpoints() as working:
            working.term.target.page = PAGE
            during_the_first_page(working, gone)
            await working.turn()
            assert status_key(99, on="r99") not in here.rows("endpoint")
            assert working.term.reconciler.present["endpoints"] == HOSTS - 1

    asyncio.run(scenario())


@pytest.mark.parametrize("way", ["goes well", "loses the database"])
def test_the_garbage_collector_rests_while_much_is_read_and_only_then(
    here: StatusHarness, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(gc_pause, "WORTH_IT", HOSTS)
    collects: dict[str, bool] = {}

    async def scenario() -> None:
        await lead_after_all_were_active(here)
        async with here.endpoints() as working:
            for name in ("read", "wanted"):
                question = getattr(here.observed, name)

                def asked(*args: Any, name: str = name, question: Callable[..., Any] = question) -> Any:
                    collects[name] = gc.isenabled()
                    if way != "goes well" and name == "wanted":
                        raise DatabaseAway("it went")
                    return question(*args)

                monkeypatch.setattr(here.observed, name, asked)
            await working.term.reconciler.turn()

    asyncio.run(scenario())
    assert collects == {"read": False, "wanted": False}
    assert gc.isenabled()
