"""Adopting what a real networking-calico wrote for a real Neutron: `tests.openstack.neutron.record` recorded both.

The recording is of projectcalico/calico at 87c15906f20c, of August 2026.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table

from holdfast.model.base.region import Region
from holdfast.model.base.time import NEVER
from holdfast.model.control.leader import LEADER
from holdfast.openstack import tables as t
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.projects import ProjectNames
from holdfast.openstack.rows import ProjectRow
from holdfast.openstack.translate.keys import KINDS, kind_at
from holdfast.openstack.translate.settings import settings_of
from holdfast.server.identity.first_start import adopt_first_start
from holdfast.server.identity.judge import IdentityJudge
from holdfast.server.syncer.keys import RegionKeys
from holdfast.testing.fakes.neutron import NeutronDatabase
from tests.server.harness import SyncerHarness, at_once

_RECORDED = json.loads((Path(__file__).parent / "recorded" / "networking-calico.json").read_text())
_REGION = Region(openstack=True)


class Recorded(SyncerHarness):
    """The recorded rows as Neutron's database, and the recorded etcd."""

    def __init__(self, database: NeutronDatabase, folder: Path) -> None:
        super().__init__(database.engine, folder, _REGION)
        for name, rows in _RECORDED["neutron"].items():
            for row in rows:
                database.insert(_TABLES[name], **row)
        projects = {each: ProjectRow(each, **one) for each, one in _RECORDED["keystone"].items()}
        names = ProjectNames(lambda: projects, lambda: NEVER)
        self.neutron = NeutronInventory(database.engine, settings_of(_REGION, _RECORDED["options"]), names)
        self.inventory = self.neutron  # type: ignore[assignment]
        asyncio.run(self._fill())

    async def _fill(self) -> None:
        for key, value in _RECORDED["etcd"].items():
            await self.operator.put(key.encode(), json.dumps(value).encode())

    async def lead_and_compare(self) -> None:
        """Adopt the store, and have a leader compare all of it twice."""
        layout = RegionKeys(_REGION, self.neutron.kinds)
        judge = IdentityJudge(self.operator, _REGION, self.neutron, at_once, lambda: None, layout.is_ours)
        await adopt_first_start(judge, who="alice", why="migration")
        term = await self.settled()
        await self.compared(term)

    def revisions(self) -> dict[bytes, int]:
        leader = LEADER.key(_REGION, "leader")
        return {entry.key: entry.mod_revision for entry in self.entries() if entry.key != leader}


_TABLES = {each.name: each for each in vars(t).values() if isinstance(each, Table)}


@pytest.fixture
def recorded(database: NeutronDatabase, tmp_path: Path) -> Recorded:
    return Recorded(database, tmp_path)


def _named(table: str, *, different: bool) -> Iterator[str]:
    """The ids of ports or groups whose name says whether Holdfast rewrites them, as keys spell them."""
    for row in _RECORDED["neutron"][table]:
        if row["name"].startswith("differs") is different:
            yield row["id"].replace("-", "--") if table == "ports" else row["id"]


def _about(keys: Collection[bytes], ids: Collection[str]) -> set[bytes]:
    return {key for key in keys if any(each.encode() in key for each in ids)}


def test_of_what_networking_calico_wrote_only_what_felix_rejects_or_reads_differently_is_rewritten(
    recorded: Recorded,
) -> None:
    before = recorded.revisions()
    different = [*_named("ports", different=True), *_named("securitygroups", different=True)]

    asyncio.run(recorded.lead_and_compare())

    after = recorded.revisions()
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert changed == _about(before, different)
    assert len(changed) == len(different)


def test_the_recording_has_objects_of_every_kind(recorded: Recorded) -> None:
    found: Counter[Any] = Counter(kind_at(key, _REGION) for key in recorded.stored())

    assert all(found[kind] for kind in KINDS), found
