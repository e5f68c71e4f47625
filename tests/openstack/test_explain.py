"""`holdfast explain` and `history` of Neutron's objects: by the ids that an operator of OpenStack knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.explain import inventory as shown
from holdfast.model.base.region import Region
from holdfast.openstack import tables as t
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.runtime.control import Declined, Request, Who
from holdfast.server.syncer.explain import ExplainCommands
from holdfast.server.syncer.term import SyncerTerm
from holdfast.testing.fakes.neutron import NeutronDatabase
from tests.server.harness import SyncerHarness

REGION = Region(openstack=True)
ALICE = Who(1000, 1, "alice")


class Cloud(SyncerHarness):
    """Ports of one network and group, which a leader has written to etcd."""

    def __init__(self, database: NeutronDatabase, folder: Path) -> None:
        super().__init__(database.engine, folder, REGION)
        self.database = database
        self.inventory = NeutronInventory(database.engine, TranslationSettings(region=REGION))  # type: ignore[assignment]
        network = database.network()
        self.subnet, self.group = database.subnet(network), database.group()
        self.ports = [database.port(network, self.subnet, f"10.28.0.{n}", group=self.group) for n in range(2, 12)]

    def explain(self, kind: str, name: str, change: Callable[[], None] | None = None) -> dict[str, Any]:
        """Explain an object after the leader has settled, and after a change that it has compared."""

        async def scenario() -> dict[str, Any]:
            term: SyncerTerm = await self.settled()
            if change is not None:
                change()
                await self.compared(term)
            request = Request("explain", {"kind": kind, "name": name})
            return await ExplainCommands(term.syncer, term).answer(request, ALICE)

        return asyncio.run(scenario())


@pytest.fixture
def cloud(database: NeutronDatabase, tmp_path: Path) -> Cloud:
    return Cloud(database, tmp_path)


@pytest.mark.parametrize("kind", ["endpoint", "policy", "subnet"])
def test_an_object_is_explained_by_the_id_of_its_resource(cloud: Cloud, kind: str) -> None:
    name = {"endpoint": cloud.ports[0], "policy": cloud.group, "subnet": cloud.subnet}[kind]

    lines = list(shown.lines(cloud.explain(kind, name)))

    assert lines[0] == f"{kind} {name} is wanted and in the store."
    assert not any("UNDO" in line for line in lines), "Neutron's objects are not edited here"


def test_a_deleted_port_is_explained_by_what_the_database_witnessed(cloud: Cloud) -> None:
    port = cloud.ports[0]

    found = cloud.explain("endpoint", port, lambda: cloud.database.remove(t.PORTS, port))

    assert [(one["did"], one["who"]) for one in found["changes"]] == [("deleted", "neutron")]
    assert found["revision"] is None
    lines = list(shown.lines(found))
    assert lines[0] == f"endpoint {port} is not wanted and not in the store."
    assert not any("UNDO" in line for line in lines)


def test_a_leaked_endpoint_is_explained_with_the_commands_that_decide_about_it(cloud: Cloud) -> None:
    port = cloud.ports[0]

    def leak() -> None:
        with cloud.database.engine.begin() as connection:
            connection.execute(t.MIRROR.delete())
        cloud.database.remove(t.PORTS, port)

    found = cloud.explain("endpoint", port, leak)

    assert [one["gate"] for one in found["waits"]] == ["witness"]
    text = "\n".join(shown.lines(found))
    assert "holdfast gate allow syncer/witness" in text
    assert "holdfast ignore endpoint" in text
    assert "holdfast import" not in text, "Neutron cannot import"


def test_an_unknown_id_is_declined(cloud: Cloud) -> None:
    with pytest.raises(Declined, match="has no endpoint"):
        cloud.explain("endpoint", "11111111-2222-3333-4444-555555555555")


def _refuse(cloud: Cloud, port: str) -> None:
    """Give a port an address that Calico cannot have."""
    with cloud.database.engine.begin() as connection:
        connection.execute(t.FIXED_IPS.update().where(t.FIXED_IPS.c.port_id == port).values(ip_address="rubbish"))


def test_the_last_good_object_of_a_port_that_cannot_be_expressed_stays_and_is_not_held(cloud: Cloud) -> None:
    port = cloud.ports[0]
    before = cloud.stored()

    one = cloud.explain("endpoint", port, lambda: _refuse(cloud, port))

    assert before.keys() <= cloud.stored().keys()
    assert [key for key in cloud.stored() if port.replace("-", "--").encode() in key]
    assert (one["refused"], one["waits"], [stored["right"] for stored in one["store"]]) == (True, [], [True])
    assert next(shown.lines(one)) == f"endpoint {port} cannot be expressed; its last good object stays in the store."
    assert any("REFUSED" in line for line in shown.lines(one))


def test_nothing_is_stored_for_a_port_that_could_never_be_expressed(cloud: Cloud) -> None:
    port = cloud.ports[0]
    _refuse(cloud, port)

    one = cloud.explain("endpoint", port)

    assert not [key for key in cloud.stored() if port.replace("-", "--").encode() in key]
    assert (one["refused"], one["waits"]) == (True, [])
    assert next(shown.lines(one)) == f"endpoint {port} cannot be expressed; it is not stored."
