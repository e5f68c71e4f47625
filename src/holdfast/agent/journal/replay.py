"""Replays a journal: its contents, from its bytes alone, and how far they can be trusted. Pure.

Intact entries are kept even next to damaged ones. A journal is void only when its boot id is that of another boot of
the kernel, whose state is gone; a journal without a readable boot id is used.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from holdfast.agent.journal import codec
from holdfast.agent.journal.codec import Key
from holdfast.agent.journal.contents import JournalContents
from holdfast.agent.journal.frames import Damage, EntryKind, NotWhole, cut_short, read_whole, scan


class JournalCondition(Enum):
    """Condition of a journal when it was opened."""

    ABSENT = "there was no journal"
    WHOLE = "the journal is whole"
    TORN = "the last write to the journal was interrupted"
    DAMAGED = "the journal is damaged"
    OTHER_BOOT = "the journal is of another boot of this machine"


@dataclass(slots=True)
class Replay:
    """Findings in one file."""

    contents: JournalContents = field(default_factory=JournalContents)
    boots: set[bytes] = field(default_factory=set)
    """Boots that it says it describes; empty when it cannot say any more."""
    damage: list[Damage] = field(default_factory=list)
    missing: int = 0
    """Entries that are certainly lost: sequences have no gaps."""
    last: int = 0
    """Last sequence."""
    marks: int = 0
    """Marks of a beginning and an end; a whole file has one of each."""
    torn: bool = False
    """The damage is an interrupted write at the end and nothing else."""

    def apply(self, op: EntryKind, key: Key, body: bytes) -> None:
        if op is EntryKind.BEGIN or op is EntryKind.END:
            self.boots.add(codec.encoded_key(key))
            self.marks += 1
        else:
            self.contents.apply(op, key, body)


def replay(data: bytes) -> Replay:
    """Raise `NewerFrame`."""
    try:
        return _replay_whole(data)
    except NotWhole:
        return _replay_damaged(data)


def _replay_whole(data: bytes) -> Replay:
    """Replay a file as we wrote it, which nearly every file is. Raises `NotWhole`."""
    found = Replay()
    for run in read_whole(data):
        found.last += len(run.ops)
        if run.ops.count(EntryKind.ADD) == len(run.ops):
            found.contents.add_all(codec.read_keys(run.keys), run.bodies)
        else:
            for op, key, body in zip(run.ops, codec.read_keys(run.keys), run.bodies, strict=True):
                found.apply(EntryKind(op), key, body)
    found.contents.register_keys()
    return found


def _replay_damaged(data: bytes) -> Replay:
    found = Replay()
    for part in scan(data):
        if isinstance(part, Damage):
            found.damage.append(part)
            continue
        op, key, body, sequence = part
        found.missing += sequence - found.last - 1
        found.last = sequence
        [known] = codec.read_keys([key])
        found.apply(op, known, body)
    found.torn = (
        len(found.damage) == 1 and found.damage[0].end == len(data) and cut_short(data[found.damage[0].start :])
    )
    return found


def judge(found: Replay, boot: bytes) -> JournalCondition:
    """Decide the condition of the journal in this boot of the machine."""
    if found.boots and boot not in found.boots:
        return JournalCondition.OTHER_BOOT
    if found.missing or found.marks < 2 or (found.damage and not found.torn):
        return JournalCondition.DAMAGED
    return JournalCondition.TORN if found.damage else JournalCondition.WHOLE
