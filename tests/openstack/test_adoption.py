"""Adopting an etcd that networking-calico wrote, before any server of ours was started."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER
from holdfast.openstack import tables as t
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.reconcile import Away
from holdfast.server.identity.first_start import AdoptionRefused, adopt_first_start
from holdfast.server.identity.judge import IdentityJudge
from holdfast.server.syncer.keys import RegionKeys
from holdfast.testing.fakes.neutron import NeutronDatabase
from tests.server.harness import SyncerHarness, at_once

REGION = Region(openstack=True)


class Migration(SyncerHarness):
    """A Neutron with two ports, and etcd as networking-calico left it: other spacing, and one leaked endpoint."""

    def __init__(self, database: NeutronDatabase, folder: Path) -> None:
        super().__init__(database.engine, folder, REGION)
        self.database = database
        self.neutron = NeutronInventory(database.engine, TranslationSettings(region=REGION))
        self.inventory = self.neutron  # type: ignore[assignment]
        network = database.network()
        subnet, group = database.subnet(network), database.group()
        ports = [database.port(network, subnet, f"10.28.0.{number}", group=group) for number in (7, 8, 9)]
        asyncio.run(self._write())
        self.leaked = next(key for key in self.stored() if ports[2].replace("-", "--").encode() in key)
        database.remove(t.PORTS, ports[2])

    async def _write(self) -> None:
        for key, doc in self.wanted().items():
            value = json.loads(doc)
            if "metadata" in value:
                value["metadata"] |= {"uid": "calico-s own", "creationTimestamp": "2020-01-02T03:04:05Z"}
            if value.get("kind") == "ClusterInformation":
                value["spec"]["clusterGUID"] = "c0ffee"
            await self.operator.put(key, json.dumps(value, indent=1).encode())

    def judge(self) -> IdentityJudge:
        layout = RegionKeys(REGION, self.neutron.kinds)
        return IdentityJudge(self.operator, REGION, self.neutron, at_once, lambda: None, layout.is_ours)


@pytest.fixture
def migration(database: NeutronDatabase, tmp_path: Path) -> Migration:
    return Migration(database, tmp_path)


def test_the_first_leader_rewrites_nothing_that_is_right_and_holds_what_was_leaked(migration: Migration) -> None:
    before = migration.entries()

    async def scenario() -> str:
        adopted = await adopt_first_start(migration.judge(), who="alice", why="migration")
        term = await migration.settled()
        assert migration.neutron.fleet() == adopted.fleet
        return await migration.compared(term)

    assert asyncio.run(scenario()) == "held: witness"
    assert [entry for entry in migration.entries() if entry.key != LEADER.key(REGION, "leader")] == before
    assert migration.leaked in migration.stored()


def test_while_networking_calico_leads_nothing_is_adopted(migration: Migration) -> None:
    async def scenario() -> None:
        await migration.operator.put(LEADER.key(REGION, "leader"), b"controller-1:4711")
        await adopt_first_start(migration.judge(), who="alice", why="migration")

    with pytest.raises(AdoptionRefused, match="a server leads in this store"):
        asyncio.run(scenario())
    assert migration.neutron.fleet() is None


def test_a_leader_that_is_elected_meanwhile_keeps_the_store_from_being_named(migration: Migration) -> None:
    judge = migration.judge()

    async def and_elect(call: Callable[[], Any]) -> Any:
        answer = call()
        if migration.neutron.fleet() is not None:
            await migration.operator.put(LEADER.key(REGION, "leader"), b"other:1")
        return answer

    judge.run_in_thread = and_elect

    with pytest.raises(Away, match="a leader was elected"):
        asyncio.run(adopt_first_start(judge, who="alice", why="migration"))


def test_a_store_that_is_named_already_is_not_adopted_again(migration: Migration) -> None:
    async def scenario() -> None:
        await adopt_first_start(migration.judge(), who="alice", why="migration")
        await adopt_first_start(migration.judge(), who="alice", why="again")

    with pytest.raises(AdoptionRefused, match="inventory and store belong together"):
        asyncio.run(scenario())
