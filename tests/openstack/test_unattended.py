"""The driver notices that nobody writes its changes to etcd, and warns at a bounded rate."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.model.base.time import NEVER, seconds
from holdfast.openstack.leader_question import NOBODY, why_nobody_leads
from holdfast.openstack.server_command import CalicoOptions
from holdfast.openstack.unattended import UnattendedOutbox
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.real.etcd import EtcdCluster

START = NEVER + seconds(1_000)


def warnings(watch: UnattendedOutbox, oldest: list[int | None]) -> list[str]:
    """Look every 20 s; the list has the oldest row at each look."""
    found = (watch.look(lambda row=row: row, START + seconds(20 * number)) for number, row in enumerate(oldest))  # type: ignore[misc]
    return [one for one in found if one]


def test_a_row_that_waits_for_a_minute_is_warned_of_once_in_five_minutes() -> None:
    watch = UnattendedOutbox(lambda: NOBODY)

    found = warnings(watch, [7] * 30)

    assert found == [f"changes have waited for {waited} s and do not reach etcd: {NOBODY}" for waited in (60, 360)]


@pytest.mark.parametrize("oldest", [[None] * 30, list(range(30)), [7, 7, None, 7, 7, None]])
def test_an_outbox_that_is_empty_or_moves_on_is_attended(oldest: list[int | None]) -> None:
    assert warnings(UnattendedOutbox(lambda: NOBODY), oldest) == []


def test_a_leader_that_holds_a_change_speaks_for_itself() -> None:
    assert warnings(UnattendedOutbox(lambda: ""), [7] * 30) == []


def test_the_database_is_not_asked_with_every_change() -> None:
    watch, asked = UnattendedOutbox(lambda: NOBODY), []

    for number in range(100):
        watch.look(lambda: asked.append(1), START + seconds(number))

    assert len(asked) == 5


@pytest.mark.parametrize("led", [False, True])
def test_etcd_is_asked_whether_anybody_leads(one_etcd: EtcdCluster, led: bool) -> None:
    options = CalicoOptions(tuple(one_etcd.endpoints), region=f"attended-{led}".lower())

    async def lead() -> None:
        store = EtcdStore(Connection(tuple(one_etcd.endpoints)))
        await store.put(f"/calico/openstack/v2/region-{options.region}/neutron_election".encode(), b"{}")
        await store.close()

    if led:
        asyncio.run(lead())

    assert why_nobody_leads(options, ["/etc/neutron/neutron.conf"]) == ("" if led else NOBODY)


def test_an_etcd_that_is_away_is_named_as_the_cause() -> None:
    options = CalicoOptions(("http://127.0.0.1:1",))

    assert "etcd does not answer here" in why_nobody_leads(options, ["/etc/neutron/neutron.conf"])
