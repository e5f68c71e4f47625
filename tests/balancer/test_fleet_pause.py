"""A pause of the fleet holds every change of a balancer that takes its services from the store."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from holdfast.model.balancing import BACKEND
from holdfast.model.control.intent import INTENT, Intent, IntentKind
from holdfast.model.control.scope import FLEET
from holdfast.testing.sim.nodes import WALL_START
from tests.balancer.store_site import BOTH, StoreSite, play

PAUSE = Intent(
    what=IntentKind.PAUSE,
    scope=FLEET,
    who="ada",
    why="moving racks",
    since=WALL_START,
    until=WALL_START + timedelta(hours=2),
)
WITHOUT_B1 = {**BOTH, "192.0.2.1:80/tcp 10.0.0.1:80": 0}


async def serving(site: StoreSite) -> None:
    await site.fill()
    site.start()
    await asyncio.sleep(40)
    assert site.served() == BOTH


def test_what_is_programmed_stays_until_the_fleet_is_resumed_and_is_explained(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await serving(site)
        await site.put(INTENT, PAUSE.name, PAUSE)
        await asyncio.sleep(2)
        site.truth.down = {"b1"}
        await asyncio.sleep(30)
        assert site.served() == BOTH
        (held,) = site.job.reconciler.loop.outstanding()
        assert (held.gate, held.opens) == ("intent", "holdfast resume fleet, or the end of the pause")
        assert held.reason == "ada until 02:00:00Z: “moving racks”: an operator paused it"
        await site.drop(INTENT, PAUSE.name)
        await asyncio.sleep(5)
        assert site.served() == WITHOUT_B1

    play(story, tmp_path)


def test_it_outlives_a_restart_with_the_store_away(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await serving(site)
        await site.put(INTENT, PAUSE.name, PAUSE)
        await asyncio.sleep(2)
        site.node.kill()
        site.truth.down = {"b1"}
        site.start(store_away=True)
        await asyncio.sleep(60)
        assert site.served() == BOTH
        site.client.link.heal()
        await asyncio.sleep(30)
        assert site.served() == BOTH
        await site.drop(INTENT, PAUSE.name)
        await asyncio.sleep(10)
        assert site.served() == WITHOUT_B1

    play(story, tmp_path)


def test_it_outlives_a_store_that_was_restored_to_before_it(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await serving(site)
        backup = site.world.store.revision
        await site.put(INTENT, PAUSE.name, PAUSE)
        await site.put(BACKEND, "unused", b"{}")
        await asyncio.sleep(20)
        site.world.store.restore(backup)
        await asyncio.sleep(30)
        site.truth.down = {"b1"}
        await asyncio.sleep(30)
        assert site.served() == BOTH, "the pause is gone"

    play(story, tmp_path)


def test_the_announcer_hears_of_it(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await serving(site)
        await site.put(INTENT, PAUSE.name, PAUSE)
        await asyncio.sleep(2)
        answer = await site.command("announce_input")
        assert [one["who"] for one in answer["pauses"]] == ["ada"]

    play(story, tmp_path)
