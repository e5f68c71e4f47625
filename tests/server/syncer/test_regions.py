"""An object of another region in the inventory, as after an apply with the wrong configuration, stops no sync."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit import rules
from holdfast.inventory.edit.regions import retire_region
from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Host, HostSpec
from holdfast.server.identity.verdict import FleetIdentityReason
from holdfast.store.identity import read_identity
from tests.inventory.harness import REGION, endpoint, endpoint_key, host
from tests.server.harness import syncer_harness

FRA = Region("fra")


@pytest.fixture(autouse=True)
def edited_by_an_earlier_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such objects are refused now; what was taken before is still there."""
    monkeypatch.setattr(rules, "refuse_foreign", lambda *_: None)


def abroad(number: int) -> WantedObject:
    spec = EndpointSpec(
        orchestrator="holdfast", workload=f"w{number}", node="r1", endpoint="eth0", ip_networks=(f"10.0.0.{number}/32",)
    )
    return wanted(ENDPOINT, FRA, spec.name, Endpoint.of(FRA, spec))


def test_an_object_of_another_region_is_named_and_everything_else_is_synced(tmp_path: Path) -> None:
    with syncer_harness(tmp_path) as here, capture_logs() as logs:

        async def scenario() -> None:
            here.editor.change([endpoint(1), abroad(3)], who="alice")
            term = await here.settled()
            here.editor.change([endpoint(2), abroad(4)], who="alice")
            await term.reconciler.turn()

        asyncio.run(scenario())
        assert sorted(here.stored()) == [endpoint_key(1), endpoint_key(2)]
        assert here.inventory.waiting() == 2
    (warned,) = [one for one in logs if "another region" in one["event"]]
    assert warned["event"].startswith("objects of another region are left alone")
    assert warned["count"] == 1
    assert warned["last"].startswith("/calico")


def test_a_fleet_that_an_apply_moved_to_another_region_is_held_by_the_brake(tmp_path: Path) -> None:
    """The objects have new keys in the other region, which this syncer does not write: here it is a loss."""
    with syncer_harness(tmp_path) as here:

        async def scenario() -> str:
            here.editor.change([endpoint(n) for n in range(1, 101)], who="alice")
            term = await here.settled()
            here.editor.change([abroad(n) for n in range(1, 101)], who="alice")
            await term.reconciler.turn()
            return term.syncer.context.vitals.state

        assert asyncio.run(scenario()) == "held: brake"
        assert len(here.stored()) == 100


def test_an_object_that_an_apply_moved_to_another_region_goes_from_this_one(tmp_path: Path) -> None:
    with syncer_harness(tmp_path) as here:

        async def scenario() -> None:
            here.editor.change([endpoint(1), endpoint(2)], who="alice")
            term = await here.settled()
            here.editor.change([abroad(2)], who="alice")
            await term.reconciler.turn()

        asyncio.run(scenario())
        assert sorted(here.stored()) == [endpoint_key(1)]
        assert here.inventory.waiting() == 0


def test_a_host_of_another_region_in_the_same_database_is_not_ours_to_write(tmp_path: Path) -> None:
    """Hosts of all regions stand side by side in the store: it was written here, and fought over with its region."""
    with syncer_harness(tmp_path) as here:

        async def scenario() -> None:
            there = wanted(HOST, FRA, "r9", Host.of("r9", HostSpec()))
            here.editor.change([host(1), there], who="alice")
            await here.settled()

        asyncio.run(scenario())
        assert [key.rsplit(b"/", 1)[1] for key in here.stored()] == [b"r1"]


def test_a_host_whose_name_another_region_has_in_the_store_fails_alone(tmp_path: Path) -> None:
    with syncer_harness(tmp_path) as here:
        theirs = HOST.encode(wanted(HOST, FRA, "r1", Host.of("r1", HostSpec())).thing)  # type: ignore[arg-type]

        async def scenario() -> str:
            await here.operator.put(HOST.key(FRA, "r1"), theirs)
            here.editor.change([host(1), host(2)], who="alice")
            term = await here.lead()
            for _ in range(3):
                await term.reconciler.turn()
                await term.check_identity()
                here.clock.advance(seconds(60))
            await term.reconciler.turn()
            story = term.reconciler.ledger.outstanding(HOST.key(REGION, "r1"))
            assert story is not None
            return story.error or ""

        assert "nodes/r1 belongs to another region in the store: rename one of the two" in asyncio.run(scenario())
        assert here.stored()[HOST.key(FRA, "r1")] == theirs
        assert HOST.key(REGION, "r2") in here.stored()


def test_a_renamed_region_is_refused_until_the_old_one_is_retired(tmp_path: Path) -> None:
    with syncer_harness(tmp_path) as here:

        async def judged() -> FleetIdentityReason | None:
            term = await here.lead()
            await term.check_identity()
            await term.reconciler.turn()
            return term.identity_gate.verdict.closed

        async def scenario() -> list[FleetIdentityReason | None]:
            here.editor.change([host(1), endpoint(1)], who="alice")
            await here.settled()
            old = here.stored()
            here.region = FRA
            renamed = await judged()
            assert (await read_identity(here.operator, FRA)).identity is None
            assert here.stored() == old
            retire_region(here.engine, REGION)
            return [renamed, await judged()]

        found = asyncio.run(scenario())
    assert found == [FleetIdentityReason.REGION_RENAMED, FleetIdentityReason.FILLING]
