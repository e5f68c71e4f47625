"""The conformance suite of all dataplanes, on the real kernel in a network namespace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest

from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape
from holdfast.netlink.netns import inside
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.netns import Namespace, NamespaceNetwork, network
from holdfast.testing.real.processes import tool
from tests.balancer.dataplane.conformance import CASES, RESTARTS, Case, RestartCase


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with or_skip(equipped()) as net:
        yield net.namespace("lb")


@contextlib.contextmanager
def equipped() -> Iterator[NamespaceNetwork]:
    tool("nft")
    with network() as net:
        yield net


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_conforms(namespace: Namespace, case: Case) -> None:
    async def prove() -> None:
        dataplane = NftablesDataplane(TableShape(case.__name__))
        try:
            await case(dataplane)
        finally:
            dataplane.close()

    inside(namespace.system_name, lambda: asyncio.run(prove()))


@pytest.mark.parametrize("case", RESTARTS, ids=lambda case: case.__name__)
def test_it_outlives_its_process(namespace: Namespace, case: RestartCase) -> None:
    async def prove() -> None:
        with contextlib.ExitStack() as opened:

            def reopened() -> NftablesDataplane:
                return opened.enter_context(contextlib.closing(NftablesDataplane(TableShape(case.__name__))))

            await case(reopened(), reopened)

    inside(namespace.system_name, lambda: asyncio.run(prove()))
