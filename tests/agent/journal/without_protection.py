"""The journal without one of its protections, for the second run of `@fault` tests."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from holdfast.agent.journal.codec import Key
from holdfast.agent.journal.contents import JournalContents
from holdfast.agent.journal.frames import JournalEntry, pack
from holdfast.agent.journal.replay import JournalCondition, Replay
from holdfast.agent.journal.segment import Segment


def only_this_run(_told: Replay, _found: JournalCondition) -> JournalContents:
    """A checkpoint has only the objects of this run."""
    return JournalContents()


def written_later(self: Segment, entries: Sequence[JournalEntry]) -> None:
    """A checkpoint is written once a minute: marks at once, so that there is a file, events later."""
    if self.size < 64:
        self._write_all(pack(entries, self._last + 1))
        self._last += len(entries)
        self.size += 32


def all_at_once(remembered: JournalContents) -> Generator[Sequence[Key], None, None]:
    return remembered.keys.walk(1 << 30)
