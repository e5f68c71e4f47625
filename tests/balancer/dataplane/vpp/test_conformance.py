"""The conformance suite of all dataplanes, on a VPP in this process and on a real one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane
from holdfast.balancer.vip import NO_BACKEND
from holdfast.config.sections.vpp import VppSettings
from holdfast.testing.fakes.vpp import FakeVpp
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.vpp import Vpp, running_vpp
from tests.balancer.dataplane.conformance import (
    CASES,
    RESTARTS,
    Case,
    RestartCase,
    change,
    counters_are_of_entries_that_are_there,
)

Scenario = Callable[[Callable[[], VppDataplane]], Awaitable[None]]
FAKE_CASES = [case for case in CASES if case is not counters_are_of_entries_that_are_there]
"""The one in this process has no segment of statistics."""


@pytest.fixture(scope="module")
def vpp() -> Iterator[Vpp]:
    with or_skip(running_vpp()) as one:
        yield one


async def prove(scenario: Scenario, api_socket: Path, stats_socket: Path, memory: Path) -> None:
    """Run a scenario with planes that share their memory, as restarts of one process; then remove what it left."""
    settings = VppSettings(api_socket=str(api_socket), stats_socket=str(stats_socket))
    async with contextlib.AsyncExitStack() as opened:

        def open_plane() -> VppDataplane:
            plane = VppDataplane(settings, memory)
            opened.push_async_callback(plane.disconnect)
            return plane

        await scenario(open_plane)
        last = open_plane()
        held = await last.read()
        await last.apply([change(key, None, held[key]) for key in held if key.backend == NO_BACKEND])


def on_the_fake(folder: Path, scenario: Scenario) -> None:
    async def main() -> None:
        async with FakeVpp(folder / "api.sock").running() as fake:
            await prove(scenario, fake.path, folder / "none.sock", folder / "vpp.json")

    asyncio.run(main())


@pytest.mark.parametrize("case", FAKE_CASES, ids=lambda case: case.__name__)
def test_it_conforms(tmp_path: Path, case: Case) -> None:
    on_the_fake(tmp_path, lambda open_plane: case(open_plane()))


@pytest.mark.parametrize("case", RESTARTS, ids=lambda case: case.__name__)
def test_it_outlives_its_process(tmp_path: Path, case: RestartCase) -> None:
    on_the_fake(tmp_path, lambda open_plane: case(open_plane(), open_plane))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_it_conforms_on_a_real_vpp(vpp: Vpp, tmp_path: Path, case: Case) -> None:
    asyncio.run(prove(lambda open_plane: case(open_plane()), vpp.api_socket, vpp.stats_socket, tmp_path / "vpp.json"))


@pytest.mark.parametrize("case", RESTARTS, ids=lambda case: case.__name__)
def test_it_outlives_its_process_on_a_real_vpp(vpp: Vpp, tmp_path: Path, case: RestartCase) -> None:
    asyncio.run(
        prove(
            lambda open_plane: case(open_plane(), open_plane), vpp.api_socket, vpp.stats_socket, tmp_path / "vpp.json"
        )
    )
