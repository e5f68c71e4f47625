"""Metrics of the syncer's kinds."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast.inventory.changes import WantedObject
from holdfast.model.calico.endpoint import ENDPOINT
from tests.inventory.harness import endpoint, endpoint_name, host
from tests.server.harness import syncer_harness


def test_objects_are_counted_by_kind_in_the_store_and_outstanding(tmp_path: Path) -> None:
    with syncer_harness(tmp_path) as here:

        async def scenario() -> dict[tuple[str, str], float]:
            here.editor.change([host(1), *(endpoint(n) for n in range(40))], who="alice")
            term = await here.settled()
            here.editor.change([WantedObject(ENDPOINT, endpoint_name(n)) for n in range(30)], who="alice")
            await term.reconciler.turn()
            term._measure()
            (family,) = term.syncer.metrics.objects.collect()
            return {(s.labels["kind"], s.labels["state"]): s.value for s in family.samples}

        counted = asyncio.run(scenario())
    assert counted["endpoints", "stored"] == 40
    assert counted["endpoints", "outstanding"] == 30
    assert counted["hosts", "stored"] == 1
    assert counted["networks", "stored"] == 0
