"""`holdfast openstack check`: it compares Neutron with etcd by itself, whole or in one scope, before any server ran."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.inventory.api import Fence
from holdfast.inventory.sql.fence import raise_fence
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.policy import POLICY
from holdfast.openstack import check as check_module
from holdfast.openstack import tables as t
from holdfast.openstack.check import NeutronCheck
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.runtime.clock import SystemClock
from holdfast.store.api import Store
from holdfast.testing import FakeStore
from holdfast.testing.fakes.neutron import NeutronDatabase

REGION = Region(openstack=True)


class Cloud:
    """Two networks with a port each, as Neutron has them, and an etcd that networking-calico has filled."""

    def __init__(self, database: NeutronDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(check_module, "_AGAIN_S", 0.0)
        self.database = database
        self.inventory = NeutronInventory(database.engine, TranslationSettings(region=REGION))
        self.networks = [database.network(), database.network()]
        self.subnets = [database.subnet(self.networks[0]), database.subnet(self.networks[1], "10.29.0.0/24")]
        self.group = database.group()
        self.ports = [
            database.port(self.networks[0], self.subnets[0], "10.28.0.7", group=self.group),
            database.port(self.networks[1], self.subnets[1], "10.29.0.7"),
        ]
        self.fake = FakeStore()
        self.store: Store = self.fake.client("check")
        self.fill()

    def wanted(self) -> dict[bytes, bytes]:
        snapshot = self.inventory.snapshot()
        try:
            return {row.key: row.doc for row in snapshot.read(None, 1_000)}
        finally:
            snapshot.close()

    def fill(self) -> None:
        async def put() -> None:
            for key, doc in self.wanted().items():
                await self.store.put(key, doc)

        asyncio.run(put())

    def key(self, port: str) -> bytes:
        return next(key for key in self.wanted() if port.replace("-", "--").encode() in key)

    def spoil(self, key: bytes) -> None:
        asyncio.run(self.store.delete(key))

    def check(self, **scope: str) -> dict[str, Any]:
        chosen = self.inventory.scope(**scope)
        done = NeutronCheck(self.inventory, self.store, REGION, chosen, in_place, SystemClock().now)
        return asyncio.run(done.run())[0]


async def in_place(call: Callable[[], Any]) -> Any:
    return call()


@pytest.fixture
def cloud(database: NeutronDatabase, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    return Cloud(database, monkeypatch)


def test_before_the_first_start_what_networking_calico_wrote_is_right(cloud: Cloud) -> None:
    report = cloud.check()

    assert report["differed"] == 0
    assert cloud.inventory.fleet() is None
    assert report["unrecorded"] == 5, "two endpoints, two subnets and a policy have no mirror row yet"


def test_an_endpoint_that_etcd_lacks_is_drift(cloud: Cloud) -> None:
    cloud.spoil(cloud.key(cloud.ports[0]))

    report = cloud.check()

    assert report["groups"] == {"drift": 1, "move": 0, "witnessed": 0, "unwitnessed": 0}
    assert report["objects"][0]["op"] == "create"


def test_a_leak_is_reported_with_its_groups_and_the_port_that_inherits_its_address(cloud: Cloud) -> None:
    cloud.database.remove(t.PORTS, cloud.ports[0])
    reusing = cloud.database.port(cloud.networks[0], cloud.subnets[0], "10.28.0.7", host="compute-2")
    with cloud.database.engine.begin() as connection:
        connection.execute(t.FIXED_IPS.delete().where(t.FIXED_IPS.c.port_id == cloud.ports[0]))

    report = cloud.check()

    assert report["groups"]["unwitnessed"] == 1
    (leak,) = report["leaks"]
    assert leak["addresses"] == ["10.28.0.7"]
    assert leak["groups"] == [cloud.group]
    assert leak["reused"] == {"10.28.0.7": reusing}


def test_an_endpoint_of_a_port_that_had_no_host_is_unwitnessed_and_lets_nobody_in(cloud: Cloud) -> None:
    """networking-calico's resync writes it, and no later hook knows its key. Felix finds no host in its name."""
    key = cloud.key(cloud.ports[0])
    leaked = json.loads(cloud.wanted()[key])
    leaked["metadata"]["name"] = name = leaked["metadata"]["name"].removeprefix("compute--1")
    leaked["spec"]["node"] = ""
    asyncio.run(cloud.store.put(ENDPOINT.prefix(REGION) + name.encode(), json.dumps(leaked).encode()))
    cloud.spoil(key)
    cloud.database.remove(t.PORTS, cloud.ports[0])

    report = cloud.check()

    assert [one["key"] for one in report["objects"]] == [f"endpoint {name}"]
    assert report["groups"]["unwitnessed"] == 1
    assert report["leaks"] == []


def test_a_leaked_policy_is_unwitnessed_and_a_policy_of_an_operator_is_left_alone(cloud: Cloud) -> None:
    leaked, theirs = (POLICY.key(REGION, name) for name in ("ossg.default.gone", "made-by-hand"))
    value = next(doc for key, doc in cloud.wanted().items() if key.startswith(POLICY.prefix(REGION)))
    for key in (leaked, theirs):
        asyncio.run(cloud.store.put(key, value))

    report = cloud.check()

    assert [one["key"] for one in report["objects"]] == ["policy ossg.default.gone"]
    assert report["groups"]["unwitnessed"] == 1


def test_a_delete_that_the_database_witnessed_is_listed_as_recorded(cloud: Cloud) -> None:
    fence = Fence(REGION.segment, 1, 70)
    raise_fence(cloud.database.engine, fence, t.CONTROL.fence)
    cloud.database.insert(t.CONTROL.identity, only=1, fleet="f", witness_after=0)
    cloud.database.insert(t.OUTBOX, kind="port", resource=cloud.ports[0])
    cloud.inventory.expect(fence, [cloud.key(cloud.ports[0])])
    cloud.database.remove(t.PORTS, cloud.ports[0])

    report = cloud.check()

    assert (report["groups"]["witnessed"], report["groups"]["unwitnessed"]) == (1, 0)
    assert report["unrecorded"] == 4


def test_a_scope_has_what_belongs_to_it_and_nothing_else(cloud: Cloud) -> None:
    keys = [cloud.key(port) for port in cloud.ports]
    for key in keys:
        cloud.spoil(key)

    for number in (0, 1):
        mine = [f"{ENDPOINT.name} {ENDPOINT.parse(keys[number], REGION)}"]
        for scope in (
            {"port": cloud.ports[number]},
            {"subnet": cloud.subnets[number]},
            {"network": cloud.networks[number]},
        ):
            assert [one["key"] for one in cloud.check(**scope)["objects"]] == mine, scope
    assert [one["key"] for one in cloud.check(group=cloud.group)["objects"]] == [
        f"{ENDPOINT.name} {ENDPOINT.parse(keys[0], REGION)}"
    ]


@pytest.mark.parametrize("number", [0, 1])
def test_a_leak_belongs_to_its_network_subnet_and_group_though_neutron_forgot_its_port(
    cloud: Cloud, number: int
) -> None:
    cloud.database.remove(t.PORTS, cloud.ports[number])
    with cloud.database.engine.begin() as connection:
        connection.execute(t.FIXED_IPS.delete())
        connection.execute(t.PORT_GROUPS.delete())

    assert cloud.check(network=cloud.networks[number])["groups"]["unwitnessed"] == 1
    assert cloud.check(network=cloud.networks[1 - number])["groups"]["unwitnessed"] == 0
    assert cloud.check(subnet=cloud.subnets[number])["groups"]["unwitnessed"] == 1
    assert cloud.check(subnet=cloud.subnets[1 - number])["groups"]["unwitnessed"] == 0
    assert cloud.check(port=cloud.ports[number])["groups"]["unwitnessed"] == 1
    assert cloud.check(group=cloud.group)["groups"]["unwitnessed"] == (1 if number == 0 else 0)


def test_a_change_that_is_on_its_way_is_no_difference(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    key, doc = next(iter((key, doc) for key, doc in cloud.wanted().items() if key == cloud.key(cloud.ports[0])))
    cloud.spoil(key)
    looks = 0
    differing = NeutronCheck._differing

    async def arrives(self: NeutronCheck, keys: set[bytes]) -> set[bytes]:
        nonlocal looks
        looks += 1
        if looks == 3:
            await cloud.store.put(key, doc)
        return await differing(self, keys)

    monkeypatch.setattr(NeutronCheck, "_differing", arrives)

    assert cloud.check()["differed"] == 0


def test_a_rule_without_a_form_in_calico_is_named_and_is_no_difference(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = {"id": "r1", "security_group_id": cloud.group, "direction": "ingress", "ethertype": "IPv4"}
    cloud.database.insert(t.RULES, **rule, protocol="udplite", port_range_min=1, port_range_max=2)

    report = cloud.check()

    assert report["differed"] == 0
    (refused,) = report["refused"]
    assert "rule r1" in refused
    assert "TCP, UDP and SCTP only" in refused
    assert capsys.readouterr().out == "", "a log line would spoil the command's output"
