"""Other programs in the kernel: their objects stay, and their changes to ours are noticed."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping
from unittest.mock import patch

import pytest

from holdfast.agent.claims import (
    ClaimKey,
    ClaimKind,
    LocalRoute,
    Mode,
    NexthopEntry,
    RemoteRoute,
    Shape,
    VxlanDevice,
    nexthop,
    route,
)
from holdfast.agent.claims import device as device_key
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.agent.tunnels import tunnel_mac
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink import routes
from holdfast.netlink.socket import Netlink
from holdfast.runtime.cooperative import Steps
from tests.agent.dataplane.linux.harness import HostHarness, creates, deletes, direct_peer, replace, vxlan_peer

PATIENCE_S = 20


async def disturbed(dataplane: LinuxDataplane) -> Collection[ClaimKey] | None:
    return await asyncio.wait_for(dataplane.disturbed(), PATIENCE_S)


async def is_disturbed(dataplane: LinuxDataplane) -> bool:
    """Take the disturbances that have arrived; False if there are none."""
    waiting = asyncio.create_task(dataplane.disturbed())
    for _ in range(10):  # until it waits for the next event
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    return not waiting.cancelled()


def without_devices(objects: Mapping[ClaimKey, Shape]) -> dict[ClaimKey, Shape]:
    return {key: shape for key, shape in objects.items() if key.kind is not ClaimKind.DEVICE}


async def programmed(dataplane: LinuxDataplane, wanted: Mapping[ClaimKey, Shape]) -> None:
    """Everything is programmed, and no event is left."""
    assert not any(await dataplane.apply(creates(wanted)))
    assert await dataplane.read() == wanted


def test_N14_what_others_have_is_neither_seen_nor_touched(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.ip("route add 10.28.0.7/32 via 10.0.0.254 proto static")
    site.ip("route add 10.30.0.0/16 via 10.0.0.254 proto 175")
    site.ip("route add 10.31.0.0/16 via 10.0.0.254 table 7500 proto static")
    site.ip("nexthop add id 750000000 via 10.0.0.254 dev", site.uplink, "proto static")
    site.ip("neighbour add 10.0.0.77 lladdr 02:00:00:00:00:77 dev", site.uplink, "nud permanent")
    site.ip("rule add priority 19000 table 7500")
    foreign = _everything(site)

    async def scene() -> None:
        wanted = {**vxlan_peer(7), **direct_peer(9)}
        assert await dataplane.read() == {}
        await programmed(dataplane, wanted)
        assert not any(await dataplane.apply(deletes(wanted)))

    asyncio.run(scene())
    assert _everything(site) == foreign


def test_N14_a_foreign_route_in_our_table_refuses_ours_and_stays(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.ip("route add 10.28.0.7/32 via 10.0.0.254 table 7500 proto static")

    async def scene() -> None:
        wanted = vxlan_peer(7)
        changes = creates(wanted)
        answers = dict(zip([change.key for change in changes], await dataplane.apply(changes), strict=True))
        assert answers.pop(route("10.28.0.7/32")) == (
            "a foreign object occupies this place in the kernel: remove it, or change the desired state"
        )
        assert not any(answers.values())
        assert not any(await dataplane.apply(deletes(wanted)))

    asyncio.run(scene())
    assert "10.28.0.7 via 10.0.0.254" in site.ip("route show table 7500 proto static")


def test_a_foreign_device_with_our_name_is_left_alone(site: HostHarness, dataplane: LinuxDataplane) -> None:
    site.ip("link add holdfast4 type vxlan id 7500 dstport 4789 local 10.0.0.1")
    site.ip("link set holdfast4 up")

    async def scene() -> None:
        wanted = {key: shape for key, shape in vxlan_peer(7).items() if key.family == 4}
        answers = await dataplane.apply(creates(wanted))
        assert set(answers) == {
            "device holdfast4 is not Holdfast's: rename it, or set another agent.linux.device",
            "the tunnel device is not in the kernel",
            "its nexthop is not in the kernel",
        }

    asyncio.run(scene())


def test_N14_neighbours_of_others_on_our_tunnel_are_not_ours(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        wanted = vxlan_peer(7)
        await programmed(dataplane, wanted)
        site.ip("neighbour add 10.9.0.8 lladdr 02:00:00:00:00:08 dev holdfast4 nud permanent protocol static")
        site.ip("neighbour add 10.9.0.9 lladdr 02:00:00:00:00:09 dev holdfast4 nud permanent")
        assert await dataplane.read() == wanted
        assert not any(await dataplane.apply(deletes(without_devices(wanted))))

    asyncio.run(scene())
    left = site.ip("-4 neighbour show dev holdfast4 nud permanent").splitlines()
    assert sorted(line.split()[0] for line in left) == ["10.9.0.8", "10.9.0.9"]


def test_a_tunnel_that_the_kernel_refuses_stops_only_what_needs_it(
    site: HostHarness, dataplane: LinuxDataplane
) -> None:
    site.ip("link add calico type vxlan id 7500 dstport 4789")

    async def scene() -> None:
        direct = direct_peer(9)
        changes = creates({**direct, **vxlan_peer(7)})
        answers = dict(zip([change.key for change in changes], await dataplane.apply(changes), strict=True))
        assert not any(answers[key] for key in direct)
        assert answers[device_key(4)] == (
            "cannot create or change device holdfast4: A VXLAN device with the specified VNI already exists"
        )

    asyncio.run(scene())


def test_a_tunnel_with_other_parameters_is_created_again(site: HostHarness, dataplane: LinuxDataplane) -> None:
    wanted = vxlan_peer(7)

    async def scene() -> None:
        await programmed(dataplane, wanted)
        site.ip("link set holdfast4 address 02:00:00:00:00:99")
        assert await disturbed(dataplane) is None
        there = await dataplane.read()
        missing = {key: shape for key, shape in wanted.items() if there.get(key) != shape}
        assert not any(await dataplane.apply(creates(missing)))
        there = await dataplane.read()
        assert not any(await dataplane.apply(creates({k: s for k, s in wanted.items() if k not in there})))
        assert await dataplane.read() == wanted
        assert "02:00:00:00:00:99" not in site.ip("link show holdfast4")

    asyncio.run(scene())


@pytest.mark.parametrize("device", ["holdfast4", "holdfast6"])
def test_a_tunnel_of_another_size_is_resized_in_place(
    site: HostHarness, dataplane: LinuxDataplane, device: str
) -> None:
    wanted = vxlan_peer(7) | vxlan_peer(8)

    key = device_key(int(device[-1]))

    async def scene(dataplane: LinuxDataplane, differs: str) -> None:
        there = await dataplane.read()
        assert there == {**wanted, key: VxlanDevice(tunnel_mac("host", key.family), differs)}
        assert not any(await dataplane.apply([replace(key, there[key], wanted[key])]))
        assert await dataplane.read() == wanted

    asyncio.run(programmed(dataplane, wanted))
    number, usual = _number(site, device), _mtu(site, device)
    site.ip(f"link set {device} mtu 1400")
    asyncio.run(scene(dataplane, f"an MTU of 1400, not {usual}"))
    with site.dataplane(LinuxSettings(underlay_mtu=1450)) as configured:
        asyncio.run(scene_of_both(configured, wanted))
    assert (_number(site, device), _mtu(site, device)) == (number, usual - 50)


async def scene_of_both(dataplane: LinuxDataplane, wanted: Mapping[ClaimKey, Shape]) -> None:
    """Both tunnels differ from what is configured, until they are changed."""
    there = await dataplane.read()
    other = [key for key in wanted if there[key] != wanted[key]]
    assert {key.kind for key in other} == {ClaimKind.DEVICE}
    assert len(other) == 2
    assert not any(await dataplane.apply([replace(key, there[key], wanted[key]) for key in other]))
    assert await dataplane.read() == wanted


def test_a_tunnel_that_another_program_resizes_is_noticed(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        await programmed(dataplane, vxlan_peer(7))
        await quiet(dataplane)
        site.ip("link set holdfast4 mtu 1400")
        assert await disturbed(dataplane) is None

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("route del 10.28.0.7/32 table 7500", route("10.28.0.7/32")),
        ("-6 route del fd00:28::7/128 table 7500", route("fd00:28::7/128")),
    ],
)
def test_a_deleted_route_is_named(site: HostHarness, dataplane: LinuxDataplane, words: str, key: ClaimKey) -> None:
    wanted = vxlan_peer(7)

    async def scene() -> None:
        await programmed(dataplane, wanted)
        site.ip(words)
        assert await disturbed(dataplane) == {key}
        assert await dataplane.read([key]) == {}
        assert not any(await dataplane.apply(creates({key: wanted[key]})))
        assert await dataplane.read() == wanted

    asyncio.run(scene())


@pytest.mark.parametrize(
    "words",
    [
        "link set holdfast4 down",
        "link del holdfast6",
        "nexthop flush proto 175",
        "rule del priority 20000",
        "neighbour flush dev holdfast4 nud permanent",
    ],
)
def test_what_others_break_is_noticed_and_can_be_made_again(
    site: HostHarness, dataplane: LinuxDataplane, words: str
) -> None:
    wanted = {**vxlan_peer(7), **dataplane.describe().own}

    async def scene() -> None:
        await programmed(dataplane, wanted)
        site.ip(words)
        await disturbed(dataplane)
        there = await dataplane.read()
        assert there != wanted
        missing = {key: shape for key, shape in wanted.items() if there.get(key) != shape}
        assert not any(await dataplane.apply(creates(missing)))
        assert await dataplane.read() == wanted

    asyncio.run(scene())


def test_an_uplink_that_flaps_is_noticed_and_what_it_took_can_be_made_again(
    site: HostHarness, dataplane: LinuxDataplane
) -> None:
    wanted = {key: shape for key, shape in direct_peer(9).items() if key.family == 4}

    async def scene() -> None:
        await programmed(dataplane, wanted)
        site.ip("link set", site.uplink, "down")
        site.ip("link set", site.uplink, "up")
        assert await disturbed(dataplane) is None
        there = await dataplane.read()
        assert not any(await dataplane.apply(creates({k: s for k, s in wanted.items() if k not in there})))
        assert await dataplane.read() == wanted

    asyncio.run(scene())


def test_a_waiter_wakes_for_an_event_that_a_reader_has_read_first(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        await programmed(dataplane, vxlan_peer(7))
        waiting = asyncio.create_task(disturbed(dataplane))
        for _ in range(10):  # until it waits
            await asyncio.sleep(0)
        site.ip("nexthop flush proto 175")
        await dataplane.read([])
        assert await waiting is None

    asyncio.run(scene())


def test_our_own_changes_are_no_disturbance(dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        wanted = {**vxlan_peer(7), **vxlan_peer(8)}
        assert not any(await dataplane.apply(creates(wanted)))
        await quiet(dataplane)  # our tunnel devices have come up meanwhile
        assert not any(await dataplane.apply(deletes(without_devices(wanted))))
        assert not any(await dataplane.apply(creates(wanted)))
        assert not await is_disturbed(dataplane)

    asyncio.run(scene())


def test_an_interface_that_comes_and_goes_blocks_its_route_and_is_a_disturbance(
    site: HostHarness, dataplane: LinuxDataplane
) -> None:
    key, shape = route("10.28.0.5/32"), LocalRoute("tap1")

    async def until(reason: str | None) -> None:
        while dataplane.blocked_by(key, shape) != reason:
            assert key in (await disturbed(dataplane) or {key})

    async def scene() -> None:
        await until("interface tap1 does not exist")
        site.interface("tap1")
        await until(None)
        assert await dataplane.apply(creates({key: shape})) == [None]
        site.ip("link set tap1-w down")
        await until("interface tap1 has no carrier")
        site.ip("link del tap1")
        await until("interface tap1 does not exist")
        assert await dataplane.read([key]) == {}

    asyncio.run(scene())


def test_a_peer_on_no_network_of_ours_waits_until_there_is_one(site: HostHarness, dataplane: LinuxDataplane) -> None:
    key, shape = nexthop("10.77.0.9"), NexthopEntry(Mode.DIRECT)

    async def scene() -> None:
        assert dataplane.blocked_by(key, shape) == "10.77.0.9 is on no connected network of this host"
        site.ip("address add 10.77.0.1/24 dev", site.uplink)
        while dataplane.blocked_by(key, shape) is not None:
            await disturbed(dataplane)
        wanted: dict[ClaimKey, Shape] = {key: shape, route("10.28.0.9/32"): RemoteRoute("10.77.0.9")}
        assert not any(await dataplane.apply(creates(wanted)))

    asyncio.run(scene())


def test_a_direct_peer_follows_its_network_to_another_device(site: HostHarness, dataplane: LinuxDataplane) -> None:
    """A renamed, bonded or bridged uplink: the old device stays, without its network."""
    key, shape = nexthop("10.0.0.9"), NexthopEntry(Mode.DIRECT)
    wanted: dict[ClaimKey, Shape] = {key: shape, route("10.29.0.9/32"): RemoteRoute("10.0.0.9")}
    site.interface("bond0")

    async def scene() -> None:
        await programmed(dataplane, wanted)
        await quiet(dataplane)
        site.ip("address del 10.0.0.1/24 dev", site.uplink)
        site.ip("address add 10.0.0.1/24 dev bond0")
        assert await disturbed(dataplane) is None
        assert (await dataplane.read())[key] == LocalRoute(site.uplink)
        assert not any(await dataplane.apply(creates({key: shape})))
        assert await dataplane.read() == wanted
        assert "dev bond0" in site.ip("nexthop show")

    asyncio.run(scene())


def test_routes_that_went_with_the_last_address_of_an_interface_are_missed(
    site: HostHarness, dataplane: LinuxDataplane
) -> None:
    key = route("10.28.0.5/32")
    site.interface("tap1")
    site.ip("address add 169.254.1.1/32 dev tap1")

    async def scene() -> None:
        await programmed(dataplane, {key: LocalRoute("tap1")})
        await quiet(dataplane)
        site.ip("address del 169.254.1.1/32 dev tap1")
        assert key in (await disturbed(dataplane) or {key})
        assert await dataplane.read([key]) == {}

    asyncio.run(scene())


def test_a_second_nexthop_for_a_gateway_goes_when_no_route_leads_through_it(
    site: HostHarness, dataplane: LinuxDataplane
) -> None:
    wanted = {**vxlan_peer(7), route("10.28.0.77/32"): RemoteRoute("10.9.0.7")}
    key, strayed = nexthop("10.9.0.7"), route("10.28.0.77/32")

    async def scene() -> None:
        await programmed(dataplane, wanted)
        _second_nexthop(site, "10.28.0.77/32")
        there = await dataplane.read()
        assert there[strayed] == LocalRoute("nexthop 760000000")
        assert await dataplane.apply([replace(key, there[key], wanted[key])]) == [
            "routes use a duplicate nexthop for it: they move first, then the duplicate is deleted"
        ]
        assert await dataplane.apply([replace(strayed, there[strayed], wanted[strayed])]) == [None]
        assert await dataplane.apply([replace(key, there[key], wanted[key])]) == [None]
        assert await dataplane.read() == wanted

    asyncio.run(scene())
    assert "760000000" not in site.ip("nexthop show")


def test_a_gateway_that_goes_takes_its_second_nexthop_with_it(site: HostHarness, dataplane: LinuxDataplane) -> None:
    async def scene() -> None:
        await programmed(dataplane, vxlan_peer(7))
        site.ip("nexthop add id 760000000 via 10.9.0.7 dev holdfast4 onlink proto 175")
        assert not any(await dataplane.apply(deletes(vxlan_peer(7))))
        assert await dataplane.read() == {}

    asyncio.run(scene())
    assert site.ip("nexthop show") == ""


@pytest.mark.parametrize("priority", [19_000, 20_000])
def test_of_two_rules_that_a_crash_has_left_only_the_wanted_one_stays(site: HostHarness, priority: int) -> None:
    for each in (19_000, 20_000):
        site.ip(f"rule add priority {each} table 7500 protocol 175")

    async def scene(dataplane: LinuxDataplane) -> None:
        wanted = {key: shape for key, shape in dataplane.describe().own.items() if key.family == 4}
        assert await dataplane.read() != wanted
        assert not any(await dataplane.apply(creates(wanted)))
        assert await dataplane.read() == wanted
        assert not any(await dataplane.apply(deletes(wanted)))

    with site.dataplane(LinuxSettings(priority=priority)) as made:
        asyncio.run(scene(made))
    assert "7500" not in site.ip("rule show")


def test_a_tunnel_with_another_mac_keeps_its_device_and_everything_on_it(site: HostHarness) -> None:
    wanted = vxlan_peer(7)
    key, other = device_key(4), VxlanDevice("02:00:00:00:00:22")

    async def scene(dataplane: LinuxDataplane) -> None:
        await programmed(dataplane, wanted)
        await quiet(dataplane)
        number = _number(site, "holdfast4")
        assert not any(await dataplane.apply([replace(key, wanted[key], other)]))
        assert await dataplane.read() == {**wanted, key: other}
        assert _number(site, "holdfast4") == number

    with site.dataplane() as dataplane:
        asyncio.run(scene(dataplane))
    assert "02:00:00:00:00:22" in site.ip("link show holdfast4")


async def quiet(dataplane: LinuxDataplane) -> None:
    """Wait until no event is left."""
    while await is_disturbed(dataplane):
        pass


def _second_nexthop(site: HostHarness, prefix: str) -> None:
    """Add a duplicate nexthop of ours for a gateway, and a route that uses it."""
    site.ip("nexthop add id 760000000 via 10.9.0.7 dev holdfast4 onlink proto 175")
    site.ip(f"route replace {prefix} nhid 760000000 table 7500 proto 175")


def _number(site: HostHarness, device: str) -> int:
    return int(site.ip(f"-oneline link show {device}").partition(":")[0])


def _mtu(site: HostHarness, device: str) -> int:
    return int(site.ip(f"-oneline link show {device}").partition(" mtu ")[2].split()[0])


def _everything(site: HostHarness) -> list[str]:
    """Everything in the kernel except our own tunnel devices, which stay once they are created."""
    shown = [
        site.ip("route show table all"),
        site.ip("nexthop show"),
        site.ip("neighbour show dev", site.uplink, "nud permanent"),
        site.ip("rule show"),
    ]
    return sorted(line for text in shown for line in text.splitlines() if "holdfast" not in line)


def test_a_refused_route_costs_a_read_of_the_routes_of_its_family_and_of_nothing_else(
    site: HostHarness, dataplane: LinuxDataplane
) -> None:
    peer = direct_peer(7)
    taken, dumped = route("10.29.0.7/32"), list[int]()
    site.ip("route add blackhole 10.29.0.7/32 table 7500 proto static")
    dump_once = Netlink._dump_once

    def recorded(self: Netlink, request: bytes) -> Steps[tuple[list[bytes], bool]]:
        dumped.append(struct.unpack_from("=H", request, 4)[0])
        return dump_once(self, request)

    async def scene() -> None:
        answers = dict(zip(sorted(peer), await dataplane.apply(creates(peer)), strict=True))
        assert [key for key, answer in answers.items() if answer] == [taken]
        with patch.object(Netlink, "_dump_once", recorded):
            assert await dataplane.read([taken, nexthop("10.0.0.7")]) == {
                nexthop("10.0.0.7"): peer[nexthop("10.0.0.7")]
            }
            assert dumped == [routes.GET]
            assert set(await dataplane.read()) == peer.keys() - {taken}

    asyncio.run(scene())
