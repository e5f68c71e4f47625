"""Services under each verdict on the store: filling, unnamed, foreign, restored, and a memory that cannot be read."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.control.identity import IDENTITY, Identity, LatchedVerdict
from holdfast.model.control.intent import INTENT, IntentKind, IntentName
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime.control import Request, Who
from holdfast.testing import World, simulate
from holdfast.testing.fault import fault
from holdfast.testing.store.link import Fate, always_answered
from tests.balancer.store_site import BOTH, REGION, StoreSite, intent, play

SECOND = {"192.0.2.2:80/tcp 10.0.0.1:80": 100, "192.0.2.2:80/tcp 10.0.0.2:80": 100}
POOL = Pool(backends={"b1": PoolMember(), "b2": PoolMember()})
DISABLED = IntentName(IntentKind.DISABLE, Scope(ScopeKind.BACKEND, "b1"))


def weighted(address: str, weight: int) -> Backend:
    return Backend(address=address, port=80, healthcheck=("web",), weight=weight)


async def restored(site: StoreSite) -> None:
    """A backup is taken, b2 gets another weight, f2 and its announcement are created, and the backup is restored."""
    await site.fill()
    site.start()
    await asyncio.sleep(40)
    backup = site.world.store.revision
    await site.put(BACKEND, "b2", weighted("10.0.0.2", 40))
    await site.put(FRONTEND, "f2", Frontend(address="192.0.2.2", port=80, pools=(POOL,)))
    await asyncio.sleep(10)
    assert site.served() == AFTER
    site.world.store.restore(backup)
    await asyncio.sleep(70)


AFTER = {
    **BOTH,
    **SECOND,
    "192.0.2.1:80/tcp 10.0.0.2:80": 40,
    "192.0.2.2:80/tcp 10.0.0.2:80": 40,
}


def test_a_restored_store_removes_nothing_and_replaces_nothing_by_older(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await restored(site)
        assert site.served() == AFTER
        status = await site.status()
        assert status["store_problem"].startswith("store_restored: the store went back to epoch 1")
        assert "to release: holdfast store adopt --reason WHY" in status["store_problem"]
        assert site.job._report().store_verdict == "store_restored"
        about = await site.job._about(Request("about"), Who(0, 1, "ops"))
        assert about["store_refusal"]["verdict"] == "store_restored"

    play(story, tmp_path)


def test_a_restored_store_adds_and_replaces_by_newer(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await restored(site)
        await site.put(FRONTEND, "f3", Frontend(address="192.0.2.3", port=80, pools=(POOL,)))
        await site.put(BACKEND, "b1", weighted("10.0.0.9", 70))
        await asyncio.sleep(10)
        at = "192.0.2.{}:80/tcp 10.0.0.{}:80"
        assert site.served() == {at.format(f, b): w for f in (1, 2, 3) for b, w in ((2, 40), (9, 70))}

    play(story, tmp_path)


def test_a_restored_store_is_followed_again_when_its_epoch_rises(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await restored(site)
        await site.put(IDENTITY, "identity", Identity("fleet-a", 2, "ada", "checked"))
        await asyncio.sleep(70)
        assert site.served() == BOTH
        assert (await site.status())["store_problem"] == ""

    play(story, tmp_path)


@fault(
    "C60",
    without="holdfast.runtime.store_guard:StoreGuard.is_released_by",
    returns=False,
    sees=(AssertionError, r"\(site.dataplane.calls, site.served\(\)\) == \(\[\], AFTER\)"),
)
def test_C60_a_store_is_released_only_once_the_balancer_has_seen_what_was_refilled(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await restored(site)
        site.client.link.mute_watches()
        await site.put(BACKEND, "b2", weighted("10.0.0.2", 40))
        await site.put(FRONTEND, "f2", Frontend(address="192.0.2.2", port=80, pools=(POOL,)))
        site.dataplane.calls.clear()
        await site.put(IDENTITY, "identity", Identity("fleet-a", 2, "ada", "checked"))
        await asyncio.sleep(200)
        assert (site.dataplane.calls, site.served()) == ([], AFTER)
        assert (await site.status())["store_problem"] == ""

    play(story, tmp_path)


def test_a_restart_under_the_verdict_changes_nothing(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await restored(site)
        site.node.kill()
        site.dataplane.calls.clear()
        site.start()
        await asyncio.sleep(70)
        assert site.dataplane.calls == []
        await site.put(BACKEND, "b2", weighted("10.0.0.2", 50))
        await asyncio.sleep(10)
        assert site.served()["192.0.2.2:80/tcp 10.0.0.2:80"] == 50

    play(story, tmp_path)


def test_a_restart_under_the_verdict_without_saved_services_removes_nothing(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await restored(site)
        for _ in range(2):
            site.node.kill()
            (tmp_path / "state" / "balancer.served.json").unlink(missing_ok=True)
            site.start()
            await asyncio.sleep(70)
            assert site.served().keys() == AFTER.keys()
        site.node.kill()
        site.start()  # what was saved meanwhile is not all that is programmed
        await asyncio.sleep(70)
        assert site.served().keys() == AFTER.keys()

    play(story, tmp_path)


def test_the_leaders_verdict_counts_without_own_evidence(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill(frontends=2)
        site.start()
        await asyncio.sleep(40)
        verdict = LatchedVerdict("store_restored", "the store went back", 1)
        await site.put(IDENTITY, "identity", Identity("fleet-a", 1, verdict=verdict))
        await site.drop(FRONTEND, "f2")
        await asyncio.sleep(70)
        assert site.served() == {**BOTH, **SECOND}

    play(story, tmp_path)


def test_a_restored_inventory_is_no_reason_to_hold_services(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill(frontends=2)
        site.start()
        await asyncio.sleep(40)
        verdict = LatchedVerdict("inventory_restored", "the inventory went back", 1)
        await site.put(IDENTITY, "identity", Identity("fleet-a", 1, verdict=verdict))
        await site.drop(FRONTEND, "f2")
        await asyncio.sleep(70)
        assert site.served() == BOTH
        assert (await site.status())["store_problem"] == ""

    play(story, tmp_path)


def test_a_wiped_store_that_is_being_filled_adds_and_keeps(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill(frontends=2)
        site.start()
        await asyncio.sleep(40)
        site.world.store.wipe()
        await asyncio.sleep(70)
        assert site.served() == {**BOTH, **SECOND}, "without an identity"
        await site.put(IDENTITY, "identity", Identity("fleet-a", 2, filling=True))
        await site.put(HEALTH_CHECK, "web", HealthCheck(type="tcp"))
        await site.put(BACKEND, "b1", weighted("10.0.0.1", 10))
        await site.put(FRONTEND, "f3", Frontend(address="192.0.2.3", port=80, pools=(POOL,)))
        await asyncio.sleep(70)
        third = {"192.0.2.3:80/tcp 10.0.0.1:80": 100, "192.0.2.3:80/tcp 10.0.0.2:80": 100}
        assert site.served() == {**BOTH, **SECOND, **third}
        assert (await site.status())["store_problem"].startswith("filling: ")
        await site.put(BACKEND, "b2", weighted("10.0.0.2", 100))
        await site.put(IDENTITY, "identity", Identity("fleet-a", 2))
        await asyncio.sleep(70)
        assert site.served() == {**third, "192.0.2.3:80/tcp 10.0.0.1:80": 10}

    play(story, tmp_path)


@fault(
    "C65",
    without="holdfast.runtime.store_guard:StoreGuard._has_older_list",
    returns=False,
    sees=(AssertionError, r"\(site.dataplane.calls, site.served\(\)\) == \(\[\], \{\*\*BOTH"),
)
def test_C65_a_balancer_that_starts_while_the_filling_ends_removes_nothing(tmp_path: Path) -> None:
    """Its lists are from before the last frontend was refilled, the identity that it reads from after that."""

    async def story(site: StoreSite) -> None:
        await site.fill(frontends=2)
        site.start()
        await asyncio.sleep(40)
        site.world.store.wipe()
        await site.put(IDENTITY, "identity", Identity("fleet-a", 2, filling=True))
        await asyncio.sleep(70)
        site.node.kill()
        site.start()
        link = site.client.link
        link.fate_of = lambda method: Fate.REFUSED if method == "txn" else Fate.ANSWERED
        await asyncio.sleep(60)  # as long as the warm-up holds everything anyway
        link.mute_watches()
        site.dataplane.calls.clear()
        await site.fill(frontends=2, epoch=2)
        link.fate_of = always_answered
        await asyncio.sleep(200)
        assert (site.dataplane.calls, site.served()) == ([], {**BOTH, **SECOND})
        assert (await site.status())["store_problem"] == ""

    play(story, tmp_path)


def test_a_store_of_another_fleet_takes_no_intents(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        await site.put(IDENTITY, "identity", Identity("fleet-b", 1))
        await asyncio.sleep(10)
        refusal = await site.disable("b1")
        assert "nothing was changed: this store belongs to fleet fleet-b" in refusal
        assert (await site.status())["store_problem"].startswith("foreign_store: ")

    play(story, tmp_path)


def test_a_memory_that_cannot_be_read_keeps_the_last_services(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        (tmp_path / "state" / "balancer.store.json").write_text("{")
        await site.drop(FRONTEND, "f1")
        await asyncio.sleep(70)
        assert site.served() == BOTH
        assert "balancer.store.json cannot be read" in (await site.status())["store_problem"]

    play(story, tmp_path)


def test_a_backend_keeps_the_address_of_a_host_that_a_restore_took_away(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        backup = site.world.store.revision
        await site.put(HOST, "r1", Host.of("r1", HostSpec(bgp=Bgp("10.9.0.1/24"))))
        await site.put(BACKEND, "b2", Backend(host="r1", port=80, healthcheck=("web",)))
        await asyncio.sleep(10)
        moved = {"192.0.2.1:80/tcp 10.0.0.1:80": 100, "192.0.2.1:80/tcp 10.9.0.1:80": 100}
        assert site.served() == moved
        site.world.store.restore(backup)
        await asyncio.sleep(70)
        assert site.served() == moved
        await site.put(HOST, "r1", Host.of("r1", HostSpec(bgp=Bgp("10.9.0.2/24"))))
        await asyncio.sleep(10)
        assert "192.0.2.1:80/tcp 10.9.0.2:80" in site.served()

    play(story, tmp_path)


def test_a_frontend_that_came_back_with_the_backup_does_not_take_the_vip_of_a_served_one(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        await site.put(FRONTEND, "a1", Frontend(address="192.0.2.2", port=80, pools=(POOL,)))
        site.start()
        await asyncio.sleep(40)
        backup = site.world.store.revision
        await site.drop(FRONTEND, "a1")
        only = Pool(backends={"b1": PoolMember()})
        await site.put(FRONTEND, "f2", Frontend(address="192.0.2.2", port=80, pools=(only,)))
        await asyncio.sleep(70)
        renamed = {**BOTH, "192.0.2.2:80/tcp 10.0.0.1:80": 100}
        assert site.served() == renamed
        site.world.store.restore(backup)
        await asyncio.sleep(70)
        assert site.served() == renamed

    play(story, tmp_path)


WITHOUT_B1 = {**BOTH, "192.0.2.1:80/tcp 10.0.0.1:80": 0}


@fault(
    "C69",
    without="holdfast.balancer.services.store_watcher:merge_intents",
    by="tests.balancer.services.without_protection:as_the_store_has_them",
    sees=(AssertionError, r"one.served\(\) == other.served\(\) == WITHOUT_B1"),
)
def test_C69_a_backend_that_was_disabled_stays_so_when_the_store_is_restored_to_before(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one, other = (StoreSite(world, world.node(name), tmp_path / name) for name in ("one", "other"))
        await one.fill()
        one.start()
        other.start()
        await asyncio.sleep(40)
        backup = world.store.revision
        assert await one.disable("b1") == "b1 gets no new flows, and established flows are ended"
        await asyncio.sleep(10)
        world.store.restore(backup)
        await asyncio.sleep(70)
        assert one.served() == other.served() == WITHOUT_B1
        other.node.kill()
        other.start()
        await asyncio.sleep(70)
        assert other.served() == WITHOUT_B1
        await one.command("backend", do="enable", name="b1")
        await asyncio.sleep(20)
        assert one.served() == other.served() == BOTH, "one balancer was told, and both follow"

    simulate(1, scenario)


def test_an_intent_survives_a_wiped_store_that_is_filled_again(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        await site.disable("b1")
        await asyncio.sleep(10)
        site.world.store.wipe()
        await asyncio.sleep(70)
        keys = site.world.store.keys
        assert not list(keys.range(INTENT.prefix(REGION), INTENT.prefix(REGION) + b"\xff")), "it counts as empty"
        await site.fill()
        await site.put(IDENTITY, "identity", Identity("fleet-a", 2, filling=True))
        await asyncio.sleep(70)
        await site.put(IDENTITY, "identity", Identity("fleet-a", 2))
        await asyncio.sleep(70)
        assert site.job._watcher is not None
        assert site.job._watcher.doubt is None
        assert site.served() == WITHOUT_B1

    play(story, tmp_path)


def test_a_disable_that_came_back_with_the_backup_takes_no_backend_out(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        wish = intent(IntentKind.DISABLE, ScopeKind.BACKEND, "b1")
        await site.put(INTENT, wish.name, wish)
        site.start()
        await asyncio.sleep(40)
        backup = site.world.store.revision
        await site.drop(INTENT, wish.name)
        await asyncio.sleep(20)
        assert site.served() == BOTH
        site.world.store.restore(backup)
        await asyncio.sleep(70)
        assert site.served() == BOTH
        await site.put(INTENT, wish.name, wish)
        await asyncio.sleep(10)
        assert site.served() == WITHOUT_B1, "a request after the restore counts"

    play(story, tmp_path)


def test_intents_are_in_force_after_a_restart_before_the_store_answers(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        await site.disable("b1")
        await asyncio.sleep(10)
        site.node.kill()
        site.dataplane.calls.clear()
        site.start(store_away=True)
        await asyncio.sleep(70)
        assert site.dataplane.calls == []
        assert site.served() == WITHOUT_B1

    play(story, tmp_path)
