"""A turn that hangs is a stall wherever it hangs, and whatever it has found by then (C4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.sections.pulse import PulseSettings
from holdfast.model.base.time import Instant
from holdfast.reconcile import Closed, SyncGate
from holdfast.reconcile.gate import JUDGED_AT_A_TIME
from holdfast.runtime.daemon.pulse import PulseVerdict, WorkerSigns, worker_verdict
from holdfast.testing.fault import fault
from tests.runtime.harness import MemoryPlace, numbered, pulse_backlog


class NoChanges:
    """A feed without changes."""

    async def fetch(self) -> Collection[int]:
        return ()

    async def settle(self, is_open: Callable[[int], bool]) -> bool:
        return False


class Hang:
    """A call that does not return for 62 s, while the supervisor checks the pulse every second."""

    def __init__(self, site: MemoryPlace) -> None:
        self._site = site
        self.verdicts: list[PulseVerdict] = []

    def watch(self) -> None:
        for _ in range(62):
            now = self._site.clock.now()
            signs = WorkerSigns(Instant(1), self._site.vitals.pulse(1, now))
            self.verdicts.append(worker_verdict(signs, PulseSettings(), now))
            self._site.clock.move(1)


@pytest.mark.parametrize("place", ["feed.fetch", "target.read", "source.read", "feed.settle"])
@fault(
    "C4",
    without="holdfast.runtime.reconciler.loop:Reconciler.is_in_turn",
    returns=False,
    sees=(AssertionError, r"hang.verdicts == \[PulseVerdict.HEALTHY\] \* 61 \+"),
)
def test_C4_a_full_pass_that_hangs_is_stalled_after_a_minute(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = MemoryPlace(tmp_path, numbered(5), numbered(5))
    site.place.feed = NoChanges()
    asyncio.run(site.turn())
    hang = Hang(site)
    part, _, method = place.partition(".")
    owner = getattr(site.place, part)
    returns = getattr(owner, method)

    async def hanging(*args: object) -> object:
        if not hang.verdicts:
            hang.watch()
        return await returns(*args)

    monkeypatch.setattr(owner, method, hanging)
    site.clock.move(301)
    asyncio.run(site.turn())
    assert hang.verdicts == [PulseVerdict.HEALTHY] * 61 + [PulseVerdict.STALLED]
    assert pulse_backlog(site) == 0


def test_marks_in_hand_count_until_their_turn_ends(tmp_path: Path) -> None:
    site = MemoryPlace(tmp_path, numbered(5), numbered(5))
    asyncio.run(site.turn())
    shown: list[int | None] = []
    get = site.target.get

    async def slowly(keys: Collection[int]) -> object:
        shown.append(pulse_backlog(site))
        return await get(keys)

    site.target.get = slowly  # type: ignore[assignment,method-assign]
    asyncio.run(site.look_at(1, 2, 3))
    assert (shown, pulse_backlog(site)) == ([3], 0)


def test_C4_planning_a_long_list_lets_heartbeats_through_and_is_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts with a hundred thousand endpoints was taken for hung while it planned, again and again."""
    site = MemoryPlace(tmp_path, numbered(5_000), {})
    judge, judged, longest = SyncGate.judge, 0, 0

    def counted(gate: SyncGate, *args: Any) -> Closed | None:
        nonlocal judged
        judged += 1
        site.clock.move(0.05)
        return judge(gate, *args)

    monkeypatch.setattr(SyncGate, "judge", counted)

    async def scene() -> None:
        nonlocal longest
        turn, before = asyncio.create_task(site.turn()), 0
        while not turn.done():
            await asyncio.sleep(0)
            longest, before = max(longest, judged - before), judged
            now = site.clock.now()
            signs = WorkerSigns(Instant(1), site.vitals.pulse(1, now))
            assert worker_verdict(signs, PulseSettings(), now) is not PulseVerdict.STALLED

    asyncio.run(scene())
    assert (judged, site.there) == (5_000, numbered(5_000))
    assert longest <= JUDGED_AT_A_TIME
