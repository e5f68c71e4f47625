"""A stale member of the store is not believed: an object that it does not list may exist. A restored store is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.inventory.changes import WantedObject
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.testing.fault import fault
from tests.inventory.harness import endpoint, endpoint_name
from tests.server.harness import syncer_harness


@fault(
    "C29",
    without="holdfast.server.syncer.target:not_stale",
    by="tests.server.syncer.without_protection:believed",
    sees=(AssertionError, r'asyncio.run\(scenario\(\)\) == \("waiting: store", 1\)'),
)
def test_C29_a_delete_is_not_settled_by_a_list_from_before_the_object_was_written(tmp_path: Path) -> None:
    with syncer_harness(tmp_path) as here:

        async def scenario() -> tuple[str, int]:
            here.editor.change([endpoint(n) for n in range(6)], who="alice")
            term = await here.settled()
            before = here.fake.revision
            here.editor.change([endpoint(7)], who="alice")
            await term.reconciler.turn()
            here.editor.change([WantedObject(ENDPOINT, endpoint_name(7))], who="alice")
            term.syncer.store.go_stale(before)  # type: ignore[attr-defined]
            term.reconciler.dirty.mark_all()
            await term.reconciler.turn()
            state, waiting = term.syncer.context.vitals.state, here.inventory.waiting()
            term.syncer.store.go_fresh()  # type: ignore[attr-defined]
            await term.apply_intents()
            await term.reconciler.turn()
            return state, waiting

        assert asyncio.run(scenario()) == ("waiting: store", 1)
        assert here.stored() == here.wanted()
        assert here.inventory.waiting() == 0


@fault(
    "C50",
    without="holdfast.server.syncer.target:EtcdTarget.lower_floor",
    sees=(AssertionError, r'asyncio.run\(scenario\(\)\) == \["waiting: store"'),
)
def test_C50_a_store_that_was_restored_within_a_term_is_refilled_once_that_is_known(tmp_path: Path) -> None:
    with syncer_harness(tmp_path) as here:

        async def scenario() -> list[str]:
            here.editor.change([endpoint(n) for n in range(6)], who="alice")
            term = await here.settled()
            backup = here.fake.revision
            here.editor.change([endpoint(n) for n in range(6, 12)], who="alice")
            await term.reconciler.turn()
            here.editor.change([endpoint(n, on="r2") for n in range(3)], who="alice")
            await term.reconciler.turn()
            here.fake.restore(backup)
            states = []
            for known_to_be_restored in (False, True):
                if known_to_be_restored:
                    await term.apply_intents()
                    await term.check_identity()
                term.reconciler.dirty.mark_all()
                await term.reconciler.turn()
                states.append(term.syncer.context.vitals.state)
            return states

        assert asyncio.run(scenario()) == ["waiting: store", "ok"]
        assert here.stored() == here.wanted(), "moves flow, too"
