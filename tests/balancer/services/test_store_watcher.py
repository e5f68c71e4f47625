"""Services from the store: the whole worker on virtual time, with a store that is unreachable, foreign or restored."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.balancer.services import store_watcher
from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.model.control.intent import INTENT, Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime import store_memory
from holdfast.runtime.paths import write_atomically
from holdfast.testing import World, simulate
from holdfast.testing.fault import fault
from holdfast.testing.sim.nodes import WALL_START
from tests.balancer import store_site
from tests.balancer.store_site import BOTH, StoreSite, intent, play


def test_services_in_the_store_are_served_and_watched(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        assert site.served() == BOTH
        await site.put(BACKEND, "b2", Backend(address="10.0.0.2", port=80, healthcheck=("web",), weight=40))
        await asyncio.sleep(1)
        assert site.served() == {**BOTH, "192.0.2.1:80/tcp 10.0.0.2:80": 40}

    play(story, tmp_path)


@fault("B24", without="holdfast.reconcile.sync:SyncGate.judge", sees=(AssertionError, r"site.served\(\) == BOTH"))
def test_B24_a_store_that_is_away_at_the_start_removes_no_vip(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        site.node.kill()
        (tmp_path / "state" / "balancer.served.json").unlink()
        site.start(store_away=True)
        await asyncio.sleep(120)
        assert site.served() == BOTH

    play(story, tmp_path)


def test_with_the_store_away_at_the_start_health_is_followed_by_what_is_on_disk(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        site.node.kill()
        site.dataplane.calls.clear()
        site.start(store_away=True)
        await asyncio.sleep(60)
        assert site.dataplane.calls == []
        site.truth.down = {"b1"}
        await asyncio.sleep(5)
        assert site.served() == {**BOTH, "192.0.2.1:80/tcp 10.0.0.1:80": 0}

    play(story, tmp_path)


def test_a_restart_with_the_store_there_makes_no_write(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill(frontends=3)
        site.start()
        await asyncio.sleep(40)
        site.node.kill()
        site.dataplane.calls.clear()
        site.start()
        await asyncio.sleep(60)
        assert site.dataplane.calls == []

    play(story, tmp_path)


def test_an_unreadable_value_keeps_its_last_good_object(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        await site.put(FRONTEND, "f1", b"{")
        await site.put(BACKEND, "b1", Backend(address="10.0.0.1", port=80, weight=101))
        await asyncio.sleep(40)
        assert site.served() == BOTH

    play(story, tmp_path)


def test_a_frontend_that_vpp_cannot_have_keeps_its_last_good_form(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        site = StoreSite(world, world.node("lb"), tmp_path, kind="vpp")
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        pool = Pool(backends={"b1": PoolMember()})
        await site.put(FRONTEND, "f1", Frontend(address="192.0.2.1", port=80, dscp=7, pools=(pool,)))
        await asyncio.sleep(40)
        assert site.served() == BOTH
        assert site.job._watcher is not None
        (bad,) = site.job._watcher._items.bad.values()
        assert "is for encapsulation: l3dsr only" in str(bad)

    simulate(1, scenario)


def test_while_an_unreadable_value_has_no_last_good_object_nothing_is_removed(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill(frontends=2)
        site.start()
        await asyncio.sleep(40)
        await site.put(FRONTEND, "f3", b"{")
        await site.drop(FRONTEND, "f2")
        await asyncio.sleep(40)
        assert len(site.served()) == 4
        await site.drop(FRONTEND, "f3")
        await asyncio.sleep(40)
        assert site.served() == BOTH

    play(story, tmp_path)


def test_a_foreign_store_changes_nothing(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        await site.put(IDENTITY, "identity", Identity("fleet-b", 1))
        await site.drop(FRONTEND, "f1")
        await asyncio.sleep(40)
        assert site.served() == BOTH

    play(story, tmp_path)


def test_a_backend_may_be_a_host_and_draining_the_host_pauses_it(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        host = Host.of("r1", HostSpec(bgp=Bgp("10.9.0.1/24")))
        await site.put(HOST, "r1", host)
        await site.put(BACKEND, "b2", Backend(host="r1", port=80, healthcheck=("web",)))
        site.start()
        await asyncio.sleep(40)
        moved = {"192.0.2.1:80/tcp 10.0.0.1:80": 100, "192.0.2.1:80/tcp 10.9.0.1:80": 100}
        assert site.served() == moved
        drain = intent(IntentKind.DRAIN, ScopeKind.HOST, "r1")
        await site.put(INTENT, drain.name, drain)
        await asyncio.sleep(2)
        assert site.served() == {**moved, "192.0.2.1:80/tcp 10.9.0.1:80": 0}
        await asyncio.sleep(5)
        assert site.job._report().draining == {"r1": None}, "this dataplane counts no flows"
        await site.drop(INTENT, drain.name)
        await asyncio.sleep(2)
        assert site.served() == moved
        assert site.job._report().draining == {}

    play(story, tmp_path)


def test_an_intent_in_the_store_is_every_balancers(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one, other = (StoreSite(world, world.node(name), tmp_path / name) for name in ("one", "other"))
        await one.fill()
        one.start()
        other.start()
        await asyncio.sleep(40)
        wish = intent(IntentKind.DISABLE, ScopeKind.BACKEND, "b1")
        await one.job._commands._intents.keep(wish)
        await asyncio.sleep(2)
        assert one.served() == other.served() == {**BOTH, "192.0.2.1:80/tcp 10.0.0.1:80": 0}
        assert one.job.reconciler.digests() == other.job.reconciler.digests()

    simulate(1, scenario)


def test_two_frontends_with_one_vip_do_not_stop_the_rest(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        await site.put(FRONTEND, "g1", Frontend(address="192.0.2.1", port=80))
        await site.put(BACKEND, "c1", Backend(address="10.0.0.1", port=80, healthcheck=("web",)))
        pool = Pool(backends={"b1": PoolMember(), "c1": PoolMember(), "ghost": PoolMember()})
        await site.put(FRONTEND, "f2", Frontend(address="192.0.2.2", port=80, pools=(pool,)))
        site.start()
        await asyncio.sleep(40)
        assert site.served() == {**BOTH, "192.0.2.2:80/tcp 10.0.0.1:80": 100}
        assert "frontend g1" in site.job.balancer.services.missing

    play(story, tmp_path)


def test_a_check_that_does_not_exist_yet_brings_no_backend_up(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        await site.put(BACKEND, "b2", Backend(address="10.0.0.2", port=80, healthcheck=("later",)))
        site.start()
        await asyncio.sleep(40)
        assert site.served() == {**BOTH, "192.0.2.1:80/tcp 10.0.0.2:80": 0}
        await site.put(HEALTH_CHECK, "later", HealthCheck(type="tcp"))
        await asyncio.sleep(2)
        assert site.served() == BOTH

    play(story, tmp_path)


def test_peers_report_what_they_program_and_which_input_differs(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        one, other = (StoreSite(world, world.node(name), tmp_path / name) for name in ("one", "other"))
        await one.fill()
        one.start()
        other.start()
        await asyncio.sleep(50)
        assert one.job._peers is not None
        assert one.job._peers.differing() == {}
        other.truth.down = {"b2"}
        await asyncio.sleep(50)
        assert one.job._peers.differing() == {}, "it may only be late"
        await asyncio.sleep(80)
        assert one.job._peers.differing() == {"other": ("health",)}
        other.node.kill()
        await asyncio.sleep(45)
        assert one.job._peers.differing() == {}

    simulate(1, scenario)


def test_a_watch_that_is_half_open_is_noticed_and_opened_again(tmp_path: Path) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        site.client.link.mute_watches()
        await asyncio.sleep(1)
        await site.put(BACKEND, "b2", Backend(address="10.0.0.2", port=80, healthcheck=("web",), weight=40))
        await asyncio.sleep(120)
        assert site.served() == {**BOTH, "192.0.2.1:80/tcp 10.0.0.2:80": 40}

    play(story, tmp_path)


class Disk:
    """Stands in for the writing of files: full on demand, and only off the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self._offloaded = False
        for module in (store_watcher, store_memory):
            monkeypatch.setattr(module, "write_atomically", self._write)
        monkeypatch.setattr(store_site, "at_once", self._offload)

    async def _offload(self, call: Callable[[], None]) -> None:
        self._offloaded = True
        try:
            call()
        finally:
            self._offloaded = False

    def _write(self, path: Path, content: bytes) -> None:
        assert self._offloaded, f"{path} is written on the event loop"
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_atomically(path, content)


def test_a_full_disk_ends_nothing_is_said_once_and_saved_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)

    async def story(site: StoreSite) -> None:
        await site.fill()
        site.start()
        await asyncio.sleep(40)
        disk.full = True
        for weight in (40, 60):
            await site.put(BACKEND, "b2", Backend(address="10.0.0.2", port=80, healthcheck=("web",), weight=weight))
            await asyncio.sleep(20)
            assert site.served() == {**BOTH, "192.0.2.1:80/tcp 10.0.0.2:80": weight}
        disk.full = False
        await asyncio.sleep(10)
        site.node.kill()
        site.start(store_away=True)
        await asyncio.sleep(60)
        assert site.served() == {**BOTH, "192.0.2.1:80/tcp 10.0.0.2:80": 60}, "served from the disk"

    with capture_logs() as logs:
        play(story, tmp_path)
    said = [one for one in logs if str(one["event"]).startswith("cannot save the services")]
    assert len(said) == 1
    assert said[0]["error"] == "[Errno 28] No space left on device"
    assert "services saved again" in [one["event"] for one in logs]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [(Scope.member("f2", "b1"), [10, 100, 100, 100]), (Scope.pool("f2", "0"), [10, 10, 100, 100])],
    ids=str,
)
def test_a_weight_in_one_frontend_comes_from_the_store_and_survives_a_restart_without_it(
    tmp_path: Path, scope: Scope, expected: list[int]
) -> None:
    async def story(site: StoreSite) -> None:
        await site.fill(frontends=2)
        site.start()
        await asyncio.sleep(40)
        asked = Intent(what=IntentKind.WEIGHT, scope=scope, who="ada", why="canary", since=WALL_START, weight=10)
        await site.put(INTENT, asked.name, asked)
        await asyncio.sleep(2)
        weights = {str(key): one.weight for key, one in site.dataplane.entries.items()}
        assert sorted(weights.values()) == expected, weights
        site.node.kill()
        site.dataplane.calls.clear()
        site.start(store_away=True)
        await asyncio.sleep(60)
        assert site.dataplane.calls == []

    play(story, tmp_path)
