"""`holdfast inventory adopt`: after the database was restored from a backup, one side follows the other."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.inventory.changes import WantedObject
from holdfast.model.calico.endpoint import ENDPOINT
from tests.cli.change.store_site import StoreSite, syncer


@pytest.fixture
def restored(site: StoreSite) -> StoreSite:
    """The dump is older than the store: 1 was changed since, 2 moved, 3 deleted (its address went to 5), 4 is the same,
    5 and 6 are new. After the verdict 7 was created and 6 deleted."""
    site.inventory.assign("f1")
    old = [site.endpoint(number) for number in range(1, 5)]
    site.editor.change([*old, site.endpoint(6)], who="alice")
    site.write(
        site.endpoint(1, gateway="10.0.0.254"),
        site.endpoint(2, on="r2"),
        site.endpoint(4),
        site.endpoint(5, address="10.0.0.3/32"),
        site.endpoint(6),
    )
    site.latch(site.inventory.revision())
    site.editor.change([site.endpoint(7), WantedObject(ENDPOINT, "holdfast-w6-eth0")], who="carol")
    return site


EDITED = "  kept: 2 edits made since the restore was noticed"


def test_without_a_choice_both_are_previewed_and_nothing_is_changed(restored: StoreSite) -> None:
    before = restored.inventory.revision()
    shown = restored.adopt()
    assert shown.stdout.splitlines() == [
        "--keep store: the inventory follows the store",
        "  create       1 endpoint: holdfast-w5-eth0",
        "  change       1 endpoint: holdfast-w1-eth0",
        "  move         1 endpoint: holdfast-w2-eth0",
        "  delete       1 endpoint: holdfast-w3-eth0",
        EDITED,
        "--keep inventory: the store follows the inventory",
        "  create       1 endpoint: holdfast-w3-eth0",
        "  change       1 endpoint: holdfast-w1-eth0",
        "  move back    1 endpoint: holdfast-w2-eth0",
        "  delete       1 endpoint: holdfast-w5-eth0",
        EDITED,
    ]
    assert "the inventory was restored from a backup" in shown.stderr
    assert "choose with --keep store or --keep inventory" in shown.stderr
    assert (shown.exit_code, restored.inventory.revision()) == (0, before)


def test_keeping_the_store_brings_it_in_and_then_asks_the_leader(restored: StoreSite) -> None:
    asked: list[dict[str, Any]] = []
    pending: list[list[bytes]] = []

    def answer(args: dict[str, Any]) -> str:
        asked.append(args)
        pending.append(restored.differing())
        return "the inventory is adopted"

    with syncer(restored.runtime, answer):
        done = restored.adopt("--keep", "store", "--reason", "old dump", "--yes")
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (0, "the inventory is adopted"), done.stderr
    assert asked == [{"side": "inventory", "keep": "store", "reason": "old dump"}]
    assert pending == [[restored.key(6), restored.key(7)]], (
        "only the edits made since are left when the leader is asked"
    )
    assert restored.editor.history(ENDPOINT, "holdfast-w2-eth0")[0].why == "old dump"
    assert set(restored.inventory.witness([restored.key(2), restored.key(3)])) == {restored.key(2), restored.key(3)}


def test_it_can_be_repeated_after_an_interruption_before_the_leader_was_asked(restored: StoreSite) -> None:
    def decline(_args: dict[str, Any]) -> str:
        raise RuntimeError("killed")

    with syncer(restored.runtime, decline):
        assert restored.adopt("--keep", "store", "--reason", "old dump", "--yes").exit_code == 4
    revision = restored.inventory.revision()
    with syncer(restored.runtime, lambda _: "done"):
        again = restored.adopt("--keep", "store", "--reason", "old dump", "--yes")
    assert (again.exit_code, restored.inventory.revision()) == (0, revision)
    assert "  nothing differs" in again.stdout


def test_keeping_the_inventory_changes_nothing_here_and_asks_the_leader(restored: StoreSite) -> None:
    asked: list[dict[str, Any]] = []
    before = restored.inventory.revision()

    def answer(args: dict[str, Any]) -> str:
        asked.append(args)
        return "the store follows"

    with syncer(restored.runtime, answer):
        done = restored.adopt("--keep", "inventory", "--reason", "the dump is right", confirm="y\n")
    assert (done.exit_code, restored.inventory.revision()) == (0, before), done.stderr
    assert asked == [{"side": "inventory", "keep": "inventory", "reason": "the dump is right"}]


def test_a_refused_confirmation_and_a_dry_run_change_nothing(restored: StoreSite) -> None:
    before = restored.inventory.revision()
    with syncer(restored.runtime, lambda _: "never asked"):
        assert restored.adopt("--keep", "store", "--reason", "no", confirm="n\n").exit_code == 1
        would = restored.adopt("--keep", "store", "--dry-run")
    assert (would.exit_code, "never asked" in would.stderr) == (0, False)
    assert restored.inventory.revision() == before


def test_without_a_leader_here_nothing_is_changed(restored: StoreSite) -> None:
    before = restored.inventory.revision()
    done = restored.adopt("--keep", "store", "--reason", "old dump", "--yes")
    assert (done.exit_code, restored.inventory.revision()) == (3, before)
    assert "no Holdfast daemon is running" in done.stderr


def test_an_object_that_cannot_follow_the_store_keeps_the_verdict(restored: StoreSite) -> None:
    """In the store 1 has an address that 7 was given since: the syncer would take it back."""
    restored.write(restored.endpoint(1, address="10.0.0.7/32"))
    with syncer(restored.runtime, lambda _: "never asked"):
        done = restored.adopt("--keep", "store", "--reason", "old dump", "--yes")
    assert (done.exit_code, "never asked" in done.stderr) == (1, False)
    assert "1 objects cannot follow the store, so the verdict stands" in done.stderr
    assert "refused        endpoint holdfast-w1-eth0: endpoint holdfast-w1-eth0 cannot have 10.0.0.7" in done.stdout


def test_a_new_object_that_is_refused_does_not_keep_the_verdict(restored: StoreSite) -> None:
    restored.write(restored.endpoint(5, address="10.0.0.7/32"))
    with syncer(restored.runtime, lambda _: "adopted"):
        done = restored.adopt("--keep", "store", "--reason", "old dump", "--yes")
    assert (done.exit_code, "refused        endpoint holdfast-w5-eth0" in done.stdout) == (0, True), done.stderr


def test_without_the_verdict_there_is_nothing_to_adopt(site: StoreSite) -> None:
    told = site.adopt("--keep", "store", "--reason", "why")
    assert (told.exit_code, "nothing to adopt" in told.stderr) == (1, True)
    assert "holdfast import" in told.stderr


def test_an_inventory_does_not_follow_an_empty_store(site: StoreSite) -> None:
    site.inventory.assign("f1")
    site.editor.change([site.endpoint(1)], who="alice")
    site.latch(site.inventory.revision())
    told = site.adopt("--keep", "store", "--reason", "why", "--yes")
    assert (told.exit_code, "the store has no object of this region" in told.stderr) == (1, True)
    assert len(site.editor.objects(ENDPOINT)) == 1


def test_a_choice_needs_a_reason(restored: StoreSite) -> None:
    told = restored.adopt("--keep", "store")
    assert (told.exit_code, "--keep needs --reason" in told.stderr) == (2, True)
