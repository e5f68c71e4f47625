"""Leaders that are killed while Neutron's API is busy lose no change."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import pytest

from holdfast.testing.real.processes import Process
from tests.openstack.neutron.felix import Cloud

_EDITED = 48


class Edited(NamedTuple):
    """A port that the load has created, and what became of it."""

    port: Any
    pair: str | None
    is_deleted: bool


def _edit(cloud: Cloud, number: int) -> Edited:
    """Create a port; every third is deleted again, and every third gets an address pair."""
    port = cloud.port()
    path, pair = f"ports/{port['id']}", f"10.{cloud.number}.0.{100 + number}"
    if number % 3 == 0:
        cloud.fleet.delete(path)
        return Edited(port, None, True)
    if number % 3 == 1:
        cloud.fleet.put(path, {"allowed_address_pairs": [{"ip_address": pair}]})
        return Edited(port, pair, False)
    return Edited(port, None, False)


def _is_stored(cloud: Cloud, edited: Edited) -> bool:
    stored = cloud.endpoint(edited.port)
    if edited.is_deleted or stored is None:
        return edited.is_deleted and stored is None
    return bool(stored["spec"].get("allowedIps", []) == ([f"{edited.pair}/32"] if edited.pair else []))


@pytest.fixture
def second(cloud: Cloud) -> Iterator[Process]:
    """A second server, as on another controller, which follows the one that Neutron started."""
    server = cloud.fleet.another_server(f"ctl-{cloud.number}")
    server.start()
    try:
        cloud.eventually(lambda: '"running"' in server.output, "the second server follows")
        yield server
    finally:
        if server.alive:
            server.kill_tree()


def _done(edits: list[Future[Edited]]) -> int:
    return sum(each.done() for each in edits)


def test_leaders_killed_under_api_load_lose_no_change(cloud: Cloud, second: Process) -> None:
    fleet = cloud.fleet
    with ThreadPoolExecutor(3) as pool:
        edits = [pool.submit(_edit, cloud, number) for number in range(_EDITED)]
        cloud.eventually(lambda: _done(edits) >= _EDITED // 4, "the API is busy")
        fleet.workers.kill_tree()
        cloud.eventually(lambda: "leadership gained" in second.output, "the second server leads")
        fleet.workers.start()
        cloud.eventually(lambda: _done(edits) >= _EDITED // 2, "the API is busy again")
        led = cloud.terms()
        second.kill_tree()
        cloud.eventually(lambda: cloud.terms() > led, "the first server leads again")
    edited = [each.result() for each in edits]

    cloud.eventually(lambda: all(_is_stored(cloud, each) for each in edited), "every change is stored")
