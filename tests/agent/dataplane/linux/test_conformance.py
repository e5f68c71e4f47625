"""Conformance of the Linux dataplane, on a real kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.netns import network
from tests.agent.dataplane.conformance import CASES, Case, Ground
from tests.agent.dataplane.linux.harness import HostHarness


@pytest.fixture(scope="module")
def shared() -> Iterator[HostHarness]:
    """One host for all cases: each ends with removing what is ours."""
    with or_skip(network()) as net:
        site = HostHarness(net)
        site.interface("tap1")
        site.interface("tap2")
        yield site


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_conforms(shared: HostHarness, case: Case) -> None:
    async def prove() -> None:
        with shared.dataplane() as dataplane:
            await case(Ground(dataplane, absent="tap9", direct="10.0.0.201", direct6="fd00::201"))

    try:
        asyncio.run(prove())
    finally:
        shared.clear()
