"""kill -9 at every step of every operation, in real processes: the journal then has all that may be in the kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.agent.journal import Journal
from holdfast.agent.journal.frames import JournalEntry
from tests.agent.journal.harness import BOOT, ENTRIES, State, told_by
from tests.agent.journal.killed_process import CALLS, FOUND

BEFORE: dict[str, tuple[JournalEntry, ...]] = {
    "absent": (),
    "torn": ENTRIES[:-1],
    "damaged": (ENTRIES[0], *ENTRIES[2:]),
}
"""Contents of the journal at the beginning."""


def may_be_known(scene: str, returned: int) -> list[State]:
    """Everything that had returned, and any first part of the batch that had not."""
    done = [*BEFORE[scene], *(entry for batch in CALLS[:returned] for entry in batch)]
    begun = CALLS[returned] if returned < len(CALLS) else ()
    return [told_by([*done, *begun[:part]]) for part in range(len(begun) + 1)]


@pytest.mark.parametrize("scene", sorted(FOUND))
def test_killed_at_every_step_nothing_that_may_be_in_the_kernel_is_forgotten(scene: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "tests.agent.journal.killed_process", folder, scene], check=True, timeout=120)
    places = sorted(folder.iterdir())
    assert len(places) > 100
    for place in places:
        journal = Journal.open(place / "journal", BOOT)
        journal.close()
        marks = place / "returned"
        known = dict(journal.live), dict(journal.deleting)
        assert known in may_be_known(scene, len(marks.read_bytes()) if marks.exists() else 0), place
        kernel = {file.name.encode() for file in (place / "kernel").iterdir()} if (place / "kernel").exists() else set()
        assert kernel <= known[0].keys() | known[1].keys(), place
