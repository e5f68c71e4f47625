"""Prefixes that would cut hosts off, written into the store by hand: held, on the endpoint's host and on others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.claims import route
from holdfast.testing.fault import fault
from tests.agent.dataplane.linux.agent import Machine, until
from tests.agent.dataplane.linux.harness import HostHarness
from tests.agent.harness import ME

STORE = "10.0.0.254"


@pytest.mark.parametrize("on", [ME, "other"])
@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("0.0.0.0/0", "it is a default route, which would take all traffic of every host"),
        ("127.0.0.1/32", "it overlaps the loopback prefix 127.0.0.0/8"),
        (f"{STORE}/32", f"it covers {STORE}, an address of the store"),
    ],
)
@fault("N21", without="holdfast.agent.gates.prefix:PrefixGate.refusal", sees=(AssertionError, "held is not None"))
def test_N21_a_bad_prefix_is_held_with_a_sentence_and_the_store_is_reached_as_before(
    site: HostHarness, tmp_path: Path, on: str, prefix: str, why: str
) -> None:
    machine = Machine(site, tmp_path)
    fleet, tap = machine.fleet, site.interface("tap1")
    before = site.ip("route get", STORE)

    async def scene() -> None:
        fleet.write(fleet.joins("other", 7), fleet.runs("bad", on, prefix, interface=tap))
        fleet.write(fleet.runs("good", on, "10.65.0.1/32", interface=tap))
        async with machine.agent(stores=[STORE]) as reconciler:
            await until(lambda: "10.65.0.1" in site.host.run("sh", "-c", "ip route show table 7500 || true"))
            held = reconciler.loop.outstanding_for(route(prefix))
            assert held is not None
            assert (held.gate, why in held.reason) == ("prefix", True)
            assert prefix.partition("/")[0] not in site.ip("route show table 7500")
            assert site.ip("route get", STORE) == before

    asyncio.run(scene())
