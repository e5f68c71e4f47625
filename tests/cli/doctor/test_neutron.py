"""`holdfast doctor` beside a Neutron: its database, and whether anybody takes its changes to etcd."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.cli.doctor import Severity
from holdfast.cli.doctor import inventory as checks
from holdfast.config.sections.inventory import InventorySettings
from holdfast.inventory.api import DatabaseAway
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER, Leader
from holdfast.testing import FakeStore

REGION = Region(openstack=True)
NEUTRON = InventorySettings(database="neutron", neutron_config=("/etc/neutron/neutron.conf",))
OURS = LEADER.encode(Leader("ctl-1", "controller-1", 4711, boot_id="b"))


@pytest.mark.parametrize(
    ("value", "severity", "words"),
    [
        (None, Severity.WRONG, "no server leads, so no change of Neutron reaches etcd"),
        (b"controller-1:4711", Severity.WRONG, "networking-calico leads from controller-1"),
        (b"\xff", Severity.WRONG, "the leader key cannot be read"),
        (OURS, Severity.GOOD, "ctl-1 leads"),
    ],
)
def test_the_leader_is_named_or_missed(value: bytes | None, severity: Severity, words: str) -> None:
    store = FakeStore().client("doctor")

    async def examined() -> tuple[Severity, str]:
        if value is not None:
            await store.put(LEADER.key(REGION, "leader"), value)
        found = await checks.examine_leader(store, REGION)
        return found.severity, found.sentence

    found = asyncio.run(examined())
    assert found[0] is severity
    assert words in found[1]


class Backend:
    """Neutron's inventory with so many rows in its outbox; None: the database is away."""

    def __init__(self, rows: int | None) -> None:
        self._rows = rows

    def inventory(self) -> Backend:
        return self

    def outbox(self, _most: int) -> list[int]:
        if self._rows is None:
            raise DatabaseAway("connection refused")
        return [0] * self._rows

    def snapshot(self) -> Backend:
        return self

    def read(self, _after: bytes | None, _most: int) -> list[object]:
        return []

    def close(self) -> None:
        return


@pytest.mark.parametrize(
    ("rows", "severity", "words"),
    [(3, Severity.GOOD, "3 changes wait for the leader"), (None, Severity.WRONG, "connection refused")],
)
def test_neutron_s_database_is_examined(
    rows: int | None, severity: Severity, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "open_backend", lambda _config, _region: Backend(rows))

    (found,) = checks.examine(NEUTRON, REGION)

    assert found.severity is severity
    assert words in found.sentence


def test_without_neutron_s_packages_it_names_what_to_install() -> None:
    (found,) = checks.examine(NEUTRON, REGION)

    assert found.severity is Severity.WRONG
    assert "holdfast[server,openstack]" in found.sentence
