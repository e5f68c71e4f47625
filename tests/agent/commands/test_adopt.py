"""`agent adopt`: a restored store is accepted for one host, after a preview, with a record of who and why."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.commands.adopt import AdoptCommand
from holdfast.agent.commands.control import AgentCommands
from holdfast.cli.daemons.agent import adoption_lines
from holdfast.model.control.identity import LatchedVerdict
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.decision_log import history
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.identity import StoreVerdict
from tests.agent.harness import ME, HostHarness
from tests.agent.test_reconciler import P1, P2, on_a_site, peer
from tests.agent.test_restored_store import VIA_A, VIA_B, restored, two_hosts, verdict

ADA = Who(1000, 1, "ada")


async def adopt(site: HostHarness, **args: object) -> Any:
    command = AdoptCommand(site.running, site.node.clock, site.decisions[-1])
    return await command.handlers()["adopt"](Request("adopt", args), ADA)


def play(scene: Callable[[HostHarness], Awaitable[None]], folder: Path) -> None:
    on_a_site(scene, folder)


def test_the_preview_says_what_would_be_deleted_and_replaced_and_changes_nothing(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await restored(site)
        preview = await adopt(site, dry_run=True)
        assert (preview["deletes"], preview["replaces"]) == (1, 1)
        assert preview["first"] == [("delete", "route 10.65.0.2/32"), ("replace", "route 10.65.0.1/32")]
        lines = list(adoption_lines(preview))
        assert lines[0].startswith("the store went back to epoch 1, revision")
        assert lines[1:] == [
            "1 deletes and 1 replaces are held until the store is accepted",
            "delete   route 10.65.0.2/32",
            "replace  route 10.65.0.1/32",
        ]
        await asyncio.sleep(10)
        assert site.shapes == {**peer(1), **peer(2), P1: VIA_B, P2: VIA_B}

    play(scene, tmp_path)


def test_an_adopted_store_is_obeyed_by_this_host_alone_and_across_restarts(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, _ = await restored(site)
        fleet.name_it(verdict=LatchedVerdict("store_restored", "the store went back"))
        await asyncio.sleep(6)
        preview = await adopt(site, dry_run=True)
        await adopt(site, reason="the backup is right", seal=preview["seal"])
        await site.settled()
        assert site.shapes == {**peer(1), **peer(2), P1: VIA_A}
        assert verdict(site) is StoreVerdict.OURS
        told = [one.sentence for one in history(tmp_path / "decisions", "agent") if one.op == "adopt"]
        assert told == [
            "ada accepted the restored store for this host: “the backup is right”; 1 deletes and 1 replaces were held"
        ]
        await site.stop()
        site.start()
        await site.settled()
        assert verdict(site) is StoreVerdict.OURS

    play(scene, tmp_path)


def test_other_changes_than_were_shown_are_not_released(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet, _ = await restored(site)
        preview = await adopt(site, dry_run=True)
        fleet.write(fleet.leaves("b"))
        await asyncio.sleep(5)
        with pytest.raises(Declined, match="others than were shown"):
            await adopt(site, reason="it is right", seal=preview["seal"])
        assert verdict(site) is StoreVerdict.RESTORED

    play(scene, tmp_path)


def test_a_store_that_is_ours_or_another_fleets_is_not_adopted(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        site.start()
        await site.settled()
        with pytest.raises(Declined, match=r"nothing to adopt: .*fleet fleet-1, epoch 1"):
            await adopt(site, reason="it is right")
        fleet.name_it("somebody-elses", 7)
        with pytest.raises(Declined, match="nothing to adopt: this store belongs to fleet somebody-elses"):
            await adopt(site, reason="it is right")
        assert verdict(site) is StoreVerdict.FOREIGN

    play(scene, tmp_path)


def test_a_store_that_lost_its_identity_is_not_adopted(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        await two_hosts(site)
        site.start()
        await site.settled()
        await asyncio.sleep(6)
        site.world.store.wipe()
        await asyncio.sleep(10)
        with pytest.raises(Declined, match="this store cannot be adopted: the store has no identity"):
            await adopt(site, reason="it is right")
        await asyncio.sleep(1)
        assert verdict(site) is StoreVerdict.RESTORED
        assert site.shapes == {**peer(1), **peer(2)}

    play(scene, tmp_path)


def test_an_unreadable_memory_holds_deletes_and_replaces_until_the_store_is_adopted(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        fleet.write(fleet.runs("w", "a", "10.65.0.1/32"))
        site.start()
        await site.settled()
        await site.stop()
        StoreMemory(tmp_path, "region").path.write_bytes(b"{")
        site.start()
        await site.settled()
        fleet.write(fleet.ends("w", "a"), fleet.runs("w", "b", "10.65.0.1/32"), fleet.runs("v", "b", "10.65.0.2/32"))
        await asyncio.sleep(10)
        assert (site.shapes[P1], site.shapes[P2]) == (VIA_A, VIA_B)
        await adopt(site, reason="the disk was full")
        await site.settled()
        assert site.shapes[P1] == VIA_B

    play(scene, tmp_path)


def test_the_report_says_the_verdict_even_when_nothing_is_held(tmp_path: Path) -> None:
    async def scene(site: HostHarness) -> None:
        fleet = await two_hosts(site)
        site.start()
        await site.settled()
        commands = AgentCommands(site.running, ME, "boot-1", site.node.clock)
        report = await commands.handlers()["report"](Request("report"), ADA)
        assert (report.get("store_verdict", ""), [one["gate"] for one in report.get("gates", [])]) == (
            "",
            ["registration"],
        )
        fleet.name_it(verdict=LatchedVerdict("store_restored", "the store went back"))
        await asyncio.sleep(6)
        report = await commands.handlers()["report"](Request("report"), ADA)
        assert not site.running.loop.held()
        assert report["store_verdict"] == "store_restored"
        assert [(one["gate"], one["scope"]) for one in report["gates"]] == [("identity", "the store went back")]
        about = await commands.handlers()["about"](Request("about"), ADA)
        (refusal,) = about["store_refusals"]
        assert refusal["verdict"] == "store_restored"
        assert refusal["sentence"] == "the store went back: its source's store was restored from a backup"
        assert "holdfast agent adopt --reason WHY" in refusal["opens"]

    play(scene, tmp_path)
