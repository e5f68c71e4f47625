"""`holdfast import`: a store that another controller has filled becomes the inventory, and nothing is written to it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from holdfast.cli.change import importing
from holdfast.cli.change.importing import read_store
from holdfast.inventory.changes import WantedObject
from holdfast.inventory.kinds import KINDS
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.model.control.leader import NEUTRON_LEADER
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Delete, Put
from holdfast.store.client import EtcdStore
from holdfast.testing.store.fake import FakeStore
from tests.cli.change.store_site import StoreSite


def test_what_is_imported_is_what_the_store_has_and_a_sync_writes_nothing(site: StoreSite) -> None:
    site.write(site.host(1), *(site.endpoint(number) for number in range(1, 8)))
    before = site.entries()
    done = site("import", "--reason", "taking over")
    assert (done.exit_code, done.stderr.startswith("0 are in the inventory already and equal")) == (0, True)
    names = ", ".join(f"holdfast-w{number}-eth0" for number in range(1, 6))
    assert done.stdout == f"imported       1 host: r1\nimported       7 endpoints: {names} and 2 more\n"
    assert (site.differing(), site.entries()) == ([], before)
    assert site.editor.history(ENDPOINT, "holdfast-w1-eth0")[0].why == "taking over"
    (row,) = site.inventory.read_keys([site.key(1)])
    assert b'"extra":{"by":"calico"}' in row.doc
    assert b"uid-holdfast-w1-eth0" in row.doc
    again = site("import")
    assert (again.stdout, again.stderr.startswith("8 are in the inventory already and equal")) == ("", True)


def test_a_dry_run_says_what_would_happen_and_changes_nothing(site: StoreSite) -> None:
    site.write(site.host(1), site.endpoint(1), site.endpoint(2, address="10.0.0.1/32"))
    would = site("import", "--dry-run")
    assert would.exit_code == 1
    assert would.stdout.splitlines()[:2] == ["would import   1 host: r1", "would import   1 endpoint: holdfast-w1-eth0"]
    assert would.stdout.splitlines()[2].startswith("refused        endpoint holdfast-w2-eth0: ")
    assert site.inventory.revision() == 0


def test_each_refused_object_is_named_and_the_others_are_imported(site: StoreSite) -> None:
    site.write(*(site.endpoint(number) for number in range(1, 6)), site.endpoint(9, address="10.0.0.3/32"))
    site.put(site.key(7), b"rubbish")
    done = site("import")
    assert done.exit_code == 1
    refused = [line for line in done.stdout.splitlines() if line.startswith("refused")]
    assert len(refused) == 2
    assert (
        "endpoint holdfast-w9-eth0 cannot have 10.0.0.3: it is the address of endpoint holdfast-w3-eth0" in refused[0]
    )
    assert refused[1].startswith("refused        endpoint r1-holdfast-w7-eth0: its value is unreadable: ")
    assert len(site.editor.objects(ENDPOINT)) == 5


def test_what_differs_or_was_deleted_is_listed_and_left_alone(site: StoreSite) -> None:
    site.editor.change([site.endpoint(1), site.endpoint(2), site.endpoint(3)], who="alice")
    site.editor.change([WantedObject(ENDPOINT, "holdfast-w3-eth0")], who="bob")
    revision = site.inventory.revision()
    site.write(site.endpoint(1, gateway="10.0.0.254"), site.endpoint(2, on="r2"), site.endpoint(3))
    done = site("import")
    assert (done.exit_code, site.inventory.revision()) == (0, revision)
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "differs        endpoint holdfast-w1-eth0",
        "differs        endpoint holdfast-w2-eth0",
        "deleted        endpoint holdfast-w3-eth0",
    ]


def test_a_store_of_another_fleet_is_refused_and_one_without_fleet_is_not(site: StoreSite) -> None:
    site.write(site.endpoint(1))
    site.put(IDENTITY.key(site.region, "identity"), IDENTITY.encode(Identity("f2", 1)))
    site.inventory.assign("f1")
    refused = site("import")
    assert (refused.exit_code, "belongs to fleet f2 and this inventory to fleet f1" in refused.stderr) == (1, True)
    site.inventory.assign("f2")
    assert site("import").stdout.startswith("imported ")


def test_another_controller_that_is_still_writing_is_named(site: StoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "WATCHED_S", 1.5)
    site.write(site.endpoint(1), site.endpoint(2))
    site.put(NEUTRON_LEADER.key(site.region, "neutron-leader"), b"ctl-7:4711")
    stop = threading.Event()

    def keep_writing() -> None:
        while not stop.wait(0.2):
            site.write(site.endpoint(1))

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        done = site("import")
    finally:
        stop.set()
        writer.join()
    warnings = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert (done.exit_code, len(warnings)) == (0, 2)
    assert "1 keys changed while they were read, such as " in warnings[0]
    assert "networking-calico leads on ctl-7 (pid 4711)" in warnings[1]


def test_a_store_without_identity_and_region_can_be_read() -> None:
    """Somebody's Calico: no key of ours in it."""
    layout = RegionKeys(Region(), KINDS)

    async def scenario() -> None:
        store = FakeStore().client("import")
        reading = await read_store(store, layout, 0.0)
        assert (reading.entries, reading.warnings, reading.identity.identity) == ([], [], None)

    asyncio.run(scenario())


def test_twenty_thousand_objects_are_imported_in_reasonable_time(site: StoreSite) -> None:
    objects = [site.endpoint(number) for number in range(1, 20_001)]

    async def fill(store: EtcdStore) -> None:
        puts = [Put(one.key, ENDPOINT.encode(one.thing)) for one in objects]  # type: ignore[arg-type]
        for start in range(0, len(puts), 100):
            await store.txn([], puts[start : start + 100])

    site.run(fill)
    began = time.monotonic()
    done = site("import")
    took = time.monotonic() - began
    assert done.stdout.startswith("imported       20,000 endpoints"), done.stderr
    assert took < 120, took
    assert site.differing() == []
    prefix = ENDPOINT.prefix(site.region)
    site.run(lambda store: store.txn([], [Delete(prefix, prefix[:-1] + b"0")]))  # other tests list this etcd, too
