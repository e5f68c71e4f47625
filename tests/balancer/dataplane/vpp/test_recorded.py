"""The VPP in this process gives the answers that a real one gave, and a real one still gives them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.testing.fakes.vpp import FakeVpp
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.vpp import running_vpp
from tests.balancer.dataplane.vpp.recorded import SCRIPT, answers, recorded


def test_the_whole_script_is_recorded() -> None:
    assert [(one["request"], one["fields"]) for one in recorded()] == [(one.name, dict(one.fields)) for one in SCRIPT]


def test_the_one_in_this_process_gives_the_recorded_answers(tmp_path: Path) -> None:
    async def told() -> Sequence[Mapping[str, Any]]:
        async with FakeVpp(tmp_path / "api.sock").running() as vpp:
            return await answers(vpp.path)

    assert asyncio.run(told()) == recorded()


def test_a_real_one_gives_the_recorded_answers() -> None:
    with or_skip(running_vpp()) as vpp:
        assert asyncio.run(answers(vpp.api_socket)) == recorded()
