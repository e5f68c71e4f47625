"""The VPP dataplane on a real VPP: the conformance suite, restarts, and that the fake describes the same API."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path

import pytest

from holdfast.balancer.dataplane.vpp.connection import VppConnection
from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane
from holdfast.balancer.dataplane.vpp.flow_table import table
from holdfast.balancer.vip import BackendEntry, Vip, VipKey, VipSettings, backend
from holdfast.config.sections.vpp import VppSettings
from holdfast.model.base.time import Duration
from holdfast.reconcile import Away
from holdfast.testing.fakes.vpp_api import REPLIES, REQUESTS
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.vpp import Vpp, running_vpp
from tests.balancer.dataplane.conformance import change, made

GRE = VipSettings(table_size=4096, algorithm=0, encapsulation="gre")


@pytest.fixture(scope="module")
def vpp() -> Iterator[Vpp]:
    with or_skip(running_vpp()) as one:
        yield one


def test_the_fake_describes_the_api_of_a_real_one(vpp: Vpp) -> None:
    async def scenario() -> Mapping[str, str]:
        connection = VppConnection(str(vpp.api_socket))
        client = await connection._connected()
        known = {name: message.crc for name, message in client.messages.items()}
        await connection.disconnect()
        return known

    known = asyncio.run(scenario())
    ours = {name: crc for name, (crc, _) in (REQUESTS | REPLIES).items()}
    assert ours == {name: known.get(name) for name in ours}


def test_a_hundred_vips_of_twenty_servers(vpp: Vpp, tmp_path: Path) -> None:
    async def scenario() -> None:
        plane = VppDataplane(VppSettings(api_socket=str(vpp.api_socket)), tmp_path / "vpp.json")
        keys = [VipKey(Vip.of(f"198.18.0.{number}", "tcp", 80)) for number in range(1, 101)]
        changes = [change(key, GRE) for key in keys]
        changes += [
            change(VipKey(key.vip, backend(f"10.9.0.{number}", 80)), BackendEntry(100))
            for key in keys
            for number in range(1, 21)
        ]
        await made(plane, *sorted(changes, key=lambda one: one.key))
        assert len(await plane.read()) == 2100
        await made(plane, *(change(key, None, GRE) for key in keys))
        assert await plane.read() == {}
        await plane.disconnect()

    asyncio.run(scenario())


@pytest.mark.parametrize(("address", "pattern"), [("198.18.1.1", "10.9.0.{}"), ("2001:db8::1", "2001:db8:7::{}")])
def test_vpp_gives_each_server_the_predicted_number_of_buckets(
    vpp: Vpp, tmp_path: Path, address: str, pattern: str
) -> None:
    vip = Vip.of(address, "tcp", 80)
    weights = {backend(pattern.format(number), 80): 1 + 13 * number % 100 for number in range(1, 12)}

    async def scenario() -> Mapping[str, int]:
        plane = VppDataplane(VppSettings(api_socket=str(vpp.api_socket)), tmp_path / "vpp.json")
        await made(
            plane, change(VipKey(vip), GRE), *(change(VipKey(vip, one), BackendEntry(weights[one])) for one in weights)
        )
        (details,) = await plane._connection.dump("lb_as_v2_dump")
        await made(plane, change(VipKey(vip), None, GRE))
        await plane.disconnect()
        return {str(one.app_srv): one.num_buckets for one in details if one.flags & 1}

    shares = Counter(table(weights, 4096))
    assert asyncio.run(scenario()) == {str(ip_address(one.address)): shares[one] for one in weights}


def test_a_hundred_connections_one_after_the_other_leave_vpp_alive(vpp: Vpp) -> None:
    async def scenario() -> None:
        for _ in range(100):
            connection = VppConnection(str(vpp.api_socket))
            await connection.dump("lb_vip_dump")
            await connection.disconnect()

    asyncio.run(scenario())


def test_a_vpp_that_is_stopped_again_and_again_stays_alive(vpp: Vpp) -> None:
    """Each time one client is given up, and another one waits for an answer."""

    async def scenario() -> None:
        connection = VppConnection(str(vpp.api_socket), Duration(milliseconds=300))
        for _ in range(25):
            await connection.ended()
            vpp.process.pause()
            for _ in range(2):
                with pytest.raises(Away):
                    await connection.dump("lb_vip_dump")
            vpp.process.resume()
        await connection.ended()
        await connection.disconnect()

    asyncio.run(asyncio.wait_for(scenario(), 300))
