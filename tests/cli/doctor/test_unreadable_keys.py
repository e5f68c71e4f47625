"""`holdfast doctor` and `holdfast status` name the same keys, in the same words."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.doctor.command import unreadable_keys
from holdfast.model.calico.agent_status import AGENT_STATUS
from holdfast.server.status.commands import view
from tests.inventory.harness import REGION, host
from tests.server.harness import StatusHarness, agent_key, status_harness, status_key

ROOT = AGENT_STATUS.prefix(REGION)
GOOD = b'{"status":"up"}'
BAD = {
    agent_key("r2"): b"not JSON",
    ROOT + b"\xff/status": b'{"uptime":1.0}',
    status_key(1): b'{"status":"sideways"}',
    ROOT + b"r1/workload/openstack": GOOD,
    ROOT + b"r1/workload/openstack/openstack%2fw1/endpoint/": GOOD,
    ROOT + b"r1/workload/openstack/openstack%2gw1/endpoint/eth0": GOOD,
    ROOT + b"r1/workload/openstack/openstack%2fw1/port/eth0": GOOD,
}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[StatusHarness]:
    with status_harness(tmp_path) as made:
        yield made


def test_doctor_and_status_agree_on_every_key_that_is_unreadable_by_its_name_or_its_value(here: StatusHarness) -> None:
    async def scenario() -> None:
        here.editor.change([host(1), host(2)], who="alice")
        await here.report("r1")
        for key in (
            status_key(2),
            ROOT + b"r1/config/something",
            ROOT + b"r1/workload/openstack/a%2fb@c/endpoint/e%25",
        ):
            await here.world.put(key, GOOD)
        for key, value in BAD.items():
            await here.world.put(key, value)
        async with here.agents() as agents, here.endpoints() as endpoints:
            shown = [view(working.term) for working in (agents, endpoints)]
        assert sum(one["bad_total"] for one in shown) == len(BAD)
        in_status = sorted(sentence for one in shown for sentence in one["bad"])
        findings = await unreadable_keys(here.world, REGION)
        sentences = [one.sentence.removesuffix(": fix or delete it") for one in findings]
        assert in_status == sorted(sentence for sentence in sentences if sentence.startswith(ROOT.decode()))

    asyncio.run(scenario())
