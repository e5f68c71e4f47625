"""The VPP dataplane against a VPP in this process, through its real API client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.balancer.dataplane.vpp.connection import MESSAGES, VppConnection
from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane
from holdfast.balancer.reconciler import same
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings, backend
from holdfast.config.sections.vpp import VppSettings
from holdfast.model.base.time import Duration
from holdfast.reconcile import Away
from holdfast.testing.fakes.vpp import FakeVpp
from tests.balancer.dataplane.conformance import change, made
from tests.balancer.dataplane.nftables.reconciling import comes_true

VIP, OTHER = Vip.of("192.0.2.1", "tcp", 80), Vip.of("192.0.2.9", "tcp", 80)
ONE, TWO = backend("10.0.0.1", 80), backend("10.0.0.2", 80)
GRE = VipSettings(table_size=4096, algorithm=0, encapsulation="gre")
FULL = (
    change(VipKey(VIP), GRE),
    change(VipKey(VIP, ONE), BackendEntry(100)),
    change(VipKey(VIP, TWO), BackendEntry(50)),
)


class Place:
    """A VPP, and planes that use it one after the other with the same memory."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.vpp = FakeVpp(folder / "api.sock")
        self._memory = folder / "vpp.json"
        self._settings = VppSettings(api_socket=str(self.vpp.path), **settings)  # type: ignore[arg-type]
        self.plane = self.restarted()

    def restarted(self) -> VppDataplane:
        self.plane = VppDataplane(self._settings, self._memory)
        return self.plane

    def without_memory(self) -> VppDataplane:
        self._memory.unlink()
        return self.restarted()


def on(place: Place, scenario: Callable[[VppDataplane, FakeVpp], Awaitable[None]]) -> None:
    async def main() -> None:
        async with place.vpp.running(), asyncio.timeout(60):
            try:
                await scenario(place.plane, place.vpp)
            finally:
                await place.plane.disconnect()

    asyncio.run(main())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_vip_and_its_servers_reach_vpp(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL)
        (found,) = vpp.vips.items()
        assert found[0] == ("192.0.2.1/32", 6, 80)
        assert {address: server.weight for address, server in found[1].servers.items()} == {
            "10.0.0.1": 100,
            "10.0.0.2": 50,
        }

    on(place, scenario)


def test_B12_a_restart_reads_back_the_same_and_writes_nothing(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        sticky = VipSettings(sticky=True, table_size=4096, algorithm=0, encapsulation="gre")
        killed = change(VipKey(VIP, TWO), BackendEntry(0, kill=True))
        await made(plane, change(VipKey(VIP), sticky), FULL[1], killed)
        before, calls = dict(await plane.read()), len(vpp.calls)
        await plane.disconnect()
        again = place.restarted()
        assert dict(await again.read()) == before
        assert before[VipKey(VIP)] == sticky
        assert before[VipKey(VIP, TWO)] == BackendEntry(0, kill=True)
        await made(again, change(VipKey(VIP), sticky), FULL[1], killed)
        assert len(vpp.calls) == calls

    on(place, scenario)


def test_B6_a_flush_that_vpp_did_not_confirm_is_made_again(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL)
        vpp.hangs_at = "lb_as_set_weight"
        plane._connection._deadline_s = 0.2
        with pytest.raises(Away):
            await plane.apply([change(VipKey(VIP, ONE), BackendEntry(0, kill=True), BackendEntry(100))])
        vpp.hangs = False  # and now it makes that flush, but who knows
        assert (await place.restarted().read())[VipKey(VIP, ONE)] == BackendEntry(0)
        await made(place.plane, change(VipKey(VIP, ONE), BackendEntry(0, kill=True), BackendEntry(100)))
        assert vpp.flushed == [(("192.0.2.1/32", 6, 80), "10.0.0.1")] * 2

    on(place, scenario)


def test_B18_vips_of_others_are_neither_seen_nor_touched(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        stranger = VppDataplane(place._settings, place._memory.with_name("other.json"))
        await made(stranger, change(VipKey(OTHER), GRE), change(VipKey(OTHER, ONE), BackendEntry(1)))
        await stranger.disconnect()
        await made(plane, *FULL)
        assert {key.vip for key in await plane.read()} == {VIP}
        assert len(vpp.vips) == 2

    on(place, scenario)


def test_a_configured_vip_is_adopted_without_memory_as_it_is_wanted(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL)
        await plane.disconnect()
        calls, again = len(vpp.calls), place.without_memory()
        assert await again.read() == {}
        wanted: list[tuple[VipKey, Value]] = [
            (VipKey(VIP), VipSettings(sticky=True, encapsulation="gre")),
            (VipKey(VIP, ONE), BackendEntry(100)),
            (VipKey(VIP, TWO), BackendEntry(50)),
        ]
        canonical = dict(again.canonical(VIP, wanted))
        held = await again.read()
        assert held.keys() == canonical.keys()
        assert all(same(canonical[key], held[key]) for key in held)
        assert len(vpp.calls) == calls

    on(place, scenario)


def test_servers_go_with_their_flows_before_their_vip(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL)
        await made(plane, change(VipKey(VIP), None, GRE))
        assert [(name, fields["is_del"]) for name, fields in vpp.calls[-3:]] == [
            ("lb_add_del_as_v2", True),
            ("lb_add_del_as_v2", True),
            ("lb_add_del_vip_v2", True),
        ]
        assert {address for _, address in vpp.flushed} == {"10.0.0.1", "10.0.0.2"}
        assert await plane.read() == {}

    on(place, scenario)


def test_a_removed_server_that_vpp_still_lists_is_gone(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL, change(VipKey(VIP, ONE), None, BackendEntry(100)))
        (vip,) = vpp.vips.values()
        assert "10.0.0.1" in vip.servers
        assert set(await plane.read()) == {VipKey(VIP), VipKey(VIP, TWO)}
        await made(plane, FULL[1])
        assert (await plane.read())[VipKey(VIP, ONE)] == BackendEntry(100)

    on(place, scenario)


def test_the_plugins_settings_are_set_once_and_others_are_kept(tmp_path: Path) -> None:
    place = Place(tmp_path, source_ipv4="198.51.100.7")

    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        before = dict(vpp.conf)
        await made(plane, *FULL)
        assert vpp.conf == {**before, "ip4_src_address": "198.51.100.7"}
        await made(plane, change(VipKey(VIP, ONE), BackendEntry(1), BackendEntry(100)))
        assert [name for name, _ in vpp.calls].count("lb_conf") == 1

    on(place, scenario)


def test_a_vip_of_a_plugin_with_other_settings_is_damaged_until_they_are_set(tmp_path: Path) -> None:
    place = Place(tmp_path, source_ipv4="198.51.100.7")

    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL)
        vpp.conf["ip4_src_address"] = "203.0.113.1"
        found = (await plane.read())[VipKey(VIP)]
        assert isinstance(found, VipSettings)
        assert found.damaged
        await made(plane, change(VipKey(VIP), GRE, found))
        assert vpp.conf["ip4_src_address"] == "198.51.100.7"
        assert (await plane.read())[VipKey(VIP)] == GRE

    on(place, scenario)


def test_what_would_crash_vpp_is_not_sent(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        (said,) = await plane.apply([change(VipKey(VIP), VipSettings(table_size=0, encapsulation="gre"))])
        assert said is not None
        assert "would crash VPP" in said
        assert vpp.calls == []

    on(place, scenario)


def test_B15_a_vpp_that_restarted_is_noticed_and_found_empty(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL)
        lost = asyncio.create_task(plane.lost())
        vpp.die()
        with pytest.raises(Away):
            await plane.read()
        assert not lost.done()
        await vpp.start()
        await lost
        assert await plane.read() == {}
        await made(plane, *FULL)
        assert len(await plane.read()) == 3

    on(place, scenario)


def test_a_vpp_that_hangs_is_away_and_comes_back(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL)
        connection = VppConnection(str(vpp.path), Duration(milliseconds=200))
        vpp.hangs = True
        with pytest.raises(Away, match=r"it does not answer on .* within 0\.2 s"):
            await connection.dump("lb_vip_dump")
        with pytest.raises(Away, match=r"it does not answer on .* within 0\.2 s"):
            await connection.dump("lb_vip_dump")
        vpp.hangs = False
        assert len((await connection.dump("lb_vip_dump"))[0]) == 1
        assert vpp.clients == 2  # that of the plane, and one for all these calls
        await connection.disconnect()

    on(place, scenario)


def test_a_client_that_is_given_up_deregisters(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        connection = VppConnection(str(vpp.path))
        await connection.dump("lb_vip_dump")
        connection._drop(connection._client)
        await comes_true(lambda: vpp.deregistered == 1)

    on(place, scenario)


def test_an_idle_connection_to_a_vpp_that_hangs_has_ended(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        connection = VppConnection(str(vpp.path), Duration(milliseconds=200), ping=Duration(milliseconds=50))
        await connection.dump("lb_vip_dump")
        ended = asyncio.create_task(connection.ended())
        vpp.hangs = True
        await comes_true(lambda: connection._client is None)
        assert not ended.done()
        vpp.hangs = False
        await ended
        await connection.disconnect()

    on(place, scenario)


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ({"lb_as_set_weight"}, "its lb plugin has no lb_as_set_weight: VPP 26.10 or newer is needed"),
        (None, "its lb plugin is not loaded"),
    ],
)
def test_a_vpp_that_is_too_old_is_refused(tmp_path: Path, without: set[str] | None, said: str) -> None:
    missing = frozenset(MESSAGES) if without is None else frozenset(without)

    async def main() -> None:
        async with FakeVpp(tmp_path / "api.sock", missing).running() as vpp:
            connection = VppConnection(str(tmp_path / "api.sock"))
            for _ in range(5):
                with pytest.raises(Away, match=said):
                    await connection.dump("lb_vip_dump")
            # It hangs after a dozen clients that did not deregister.
            assert (vpp.clients, vpp.deregistered) == (1, 1)

    asyncio.run(main())


def test_a_vpp_that_was_replaced_by_a_newer_one_is_tried_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "api.sock"
        connection = VppConnection(str(path))
        async with FakeVpp(path, frozenset({"lb_as_set_weight"})).running():
            with pytest.raises(Away, match=r"VPP 26\.10 or newer"):
                await connection.dump("lb_vip_dump")
        async with FakeVpp(path).running():
            assert await connection.dump("lb_vip_dump") == [[]]
            await connection.disconnect()

    asyncio.run(main())


def test_no_vpp_at_all_is_one_sentence(tmp_path: Path) -> None:
    async def main() -> None:
        connection = VppConnection(str(tmp_path / "nothing.sock"))
        with pytest.raises(Away, match=r"there is no socket .*: is VPP running"):
            await connection.dump("lb_vip_dump")

    asyncio.run(main())


def test_a_hundred_vips_of_twenty_servers_come_in_one_order(place: Place, tmp_path: Path) -> None:
    wanted = [VipKey(Vip.of(f"192.0.2.{number}", "tcp", 80)) for number in range(1, 101)]

    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        changes = [change(key, GRE) for key in wanted]
        changes += [
            change(VipKey(key.vip, backend(f"10.0.0.{number}", 80)), BackendEntry(100))
            for key in wanted
            for number in range(1, 21)
        ]
        await made(plane, *sorted(changes, key=lambda one: one.key))
        assert len(vpp.calls) == 2100
        assert len(await plane.read()) == 2100

    on(place, scenario)


@pytest.mark.parametrize(
    ("address", "server", "settings", "encap"),
    [
        ("192.0.2.1", "10.0.0.1", GRE, 0),
        ("2001:db8::1", "2001:db8:7::1", GRE, 1),
        ("192.0.2.1", "10.0.0.1", VipSettings(table_size=4096, algorithm=0, encapsulation="l3dsr", dscp=10), 2),
    ],
    ids=["gre4", "gre6", "l3dsr"],
)
def test_encapsulations_reach_vpp_and_are_read_back(
    place: Place, address: str, server: str, settings: VipSettings, encap: int
) -> None:
    key = VipKey(Vip.of(address, "tcp", 80))

    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, change(key, settings), change(VipKey(key.vip, backend(server, 80)), BackendEntry(100)))
        (vip,) = vpp.vips.values()
        assert (int(vip.fields["encap"]), vip.fields["dscp"]) == (encap, settings.dscp)
        assert set(vip.servers) == {server}
        assert (await plane.read())[key] == settings

    on(place, scenario)


def test_a_vpp_without_a_message_is_away_and_names_it(place: Place) -> None:
    async def scenario(plane: VppDataplane, vpp: FakeVpp) -> None:
        await made(plane, *FULL)
        with pytest.raises(Away, match="it has no ip_route_lookup"):
            await plane.counters()

    on(place, scenario)
