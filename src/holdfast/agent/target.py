"""The target of the agent's reconciler: the journal in front of the kernel and whatever else handles claims.

What may be in the kernel is in the journal before the kernel is touched, and leaves it only when every handler has let
go (N5, N11). What is there is what the journal remembers and what carries our tag, both: the kernel says in which
shape, the journal whose it is. A claim that only changes its owner is written down, and the kernel is not touched.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import structlog
from msgspec.structs import replace

from holdfast.agent.claims import Claim, ClaimKey, LocalRoute, Shape
from holdfast.agent.dataplane.api import ClaimChange, Handler, HostDataplane
from holdfast.agent.gates import readiness as waiting
from holdfast.agent.gates.dependents import Present
from holdfast.agent.journal import Journal
from holdfast.agent.journal import codec as record
from holdfast.agent.journal.frames import LONGEST_BODY, JournalEntry
from holdfast.agent.journal.frames import EntryKind as Entering
from holdfast.agent.journal.journal import JournalUnwritable
from holdfast.agent.key_order import in_order, portions
from holdfast.agent.pending_deletes import PendingDeletes
from holdfast.reconcile import Away, Op, Outcome, Owned
from holdfast.runtime.cooperative import Steps, in_turns
from holdfast.store.mirror.gc_pause import resting

log = structlog.get_logger(__name__)

ClaimOutcome = Outcome[ClaimKey, Claim]
_PAGE = 1_000
TOO_LONG = "the name of its owner or its interface is too long to be written down in the journal"


class JournaledTarget:
    """The dataplane and other handlers, behind the journal. `present` and `deletions` are for whoever tells of them."""

    def __init__(
        self, journal: Journal, dataplane: HostDataplane, others: Sequence[Handler] = (), page: int = _PAGE
    ) -> None:
        """`page` is how many objects are compared without a break."""
        self.journal = journal
        self.dataplane = dataplane
        self.handlers: Sequence[Handler] = (dataplane, *others)
        self.present = Present()
        self.deletions = PendingDeletes([handler.name for handler in self.handlers])
        self._remembered: dict[ClaimKey, Owned[Claim] | bytes] = {}
        """Encoded until it is looked at."""
        self._looked = False
        self._order: list[ClaimKey] = []
        """All that was there when everything was last read."""
        self._page = page
        self._unsettled: set[ClaimKey] = set()
        """Not every handler has taken its last addition, as far as is known."""
        self._recall()

    def _recall(self) -> None:
        """What earlier lives have left: remembered, and nothing of it is programmed. Bodies are read when needed."""
        live = self.journal.live
        with resting(len(live)):
            keys = record.read_keys(live)
            self._remembered = {key: body for key, body in zip(keys, live.values(), strict=True) if key is not None}
        if len(self.handlers) > 1:
            self._unsettled.update(self._remembered)  # what only the kernel can show, only the kernel is sure to have
        for text, body in self.journal.going.items():
            key = record.read_key(text)
            if key is not None:
                self._remembered[key] = body
                self.deletions.begin([key])
        unknown = len(live) + len(self.journal.going) - len(self._remembered)
        if unknown:
            log.error(f"{unknown:,} records of the journal are of another release: they stay, and are not used")

    def _recalled(self, key: ClaimKey) -> Owned[Claim] | None:
        """What is remembered under this key; None: nothing, or nothing that this release understands."""
        known = self._remembered.get(key)
        if isinstance(known, bytes):
            owned = record.read(known)
            if owned is None:
                log.error(f"the journal's record of {key} is of another release: it stays, and is not used")
                del self._remembered[key]
                return None
            self._remembered[key] = owned
            return owned
        return known

    def remembered(self) -> Iterator[tuple[ClaimKey, Owned[Claim]]]:
        """What earlier lives have made or begun to remove, as the journal has it."""
        for key in list(self._remembered):
            if (owned := self._recalled(key)) is not None:
                yield key, owned

    def holder(self, key: ClaimKey) -> Owned[Claim] | None:
        """Who has that, as the journal has it; nobody has what is being removed."""
        return None if key in self.deletions else self._recalled(key)

    async def read(self, after: ClaimKey | None) -> tuple[Sequence[tuple[ClaimKey, Owned[Claim]]], ClaimKey | None]:
        """Everything is read for the first page; the others are of the same moment, but for what we did since."""
        await asyncio.sleep(0)  # between two pages everybody has a turn
        if after is None:
            await self._read_all()
        start = 0 if after is None else bisect_right(self._order, after)
        end, claims = start + self._page, self.present.claims
        page = [(key, claims[key]) for key in self._order[start:end] if key in claims]
        return page, self._order[end - 1] if end < len(self._order) else None

    async def _read_all(self) -> None:
        # The first time everything is decoded; later it is only compared.
        with resting(len(self._remembered), lasting=not self._looked):
            shapes = await self.dataplane.read()
            self._order = list(await in_turns(self._finding(shapes)))
            self._looked = True

    async def get(self, keys: Collection[ClaimKey]) -> Mapping[ClaimKey, Owned[Claim]]:
        shapes = await self.dataplane.read(keys)
        found = {key: owned for key in keys if (owned := self._found(key, shapes)) is not None}
        for key in keys:
            if key in found:
                self.present.put(key, found[key])
            else:
                self.present.drop(key)
        return found

    async def apply(self, ready: Sequence[ClaimChange]) -> Sequence[ClaimOutcome]:
        errors = {change.key: [TOO_LONG] for change in ready if is_too_long(change)}
        written = [change for change in ready if change.key not in errors]
        self._write_ahead(written)
        steps = [change for change in written if touches_kernel(change)]
        for handler in self.handlers:
            await self._hand_over(handler, steps, errors)
        outcomes = [self._outcome(change, errors.get(change.key)) for change in ready]
        self._finish([outcome.change.key for outcome in outcomes if is_over(outcome)])
        return outcomes

    def _finding(self, shapes: Mapping[ClaimKey, Shape]) -> Steps[Mapping[ClaimKey, Owned[Claim]]]:
        """All that there is, in order. Meanwhile nobody else reads, looks or applies: that is one after the other."""
        yield
        unknown = [key for key in shapes if key not in self._remembered]
        yield
        found: dict[ClaimKey, Owned[Claim]] = {}
        for some in portions((yield from in_order([*self._remembered, *unknown]))):
            found |= {key: owned for key in some if (owned := self._found(key, shapes)) is not None}
            yield
        yield from self.present.replacing_all(found)
        return found

    def _found(self, key: ClaimKey, shapes: Mapping[ClaimKey, Shape]) -> Owned[Claim] | None:
        """Whose it is, by the journal; how it is, by the kernel."""
        remembered, shape = self._recalled(key), shapes.get(key)
        if remembered is None:
            return None if shape is None else Owned(Claim(shape), "", 0)
        claim = remembered.value
        if shape is None or key in self.deletions or key in self._unsettled:
            claim = replace(claim, shape=shape or claim.shape, missing=True)
        elif shape != claim.shape:
            claim = replace(claim, shape=shape)
        return remembered if claim is remembered.value else Owned(claim, remembered.source, remembered.revision)

    def _write_ahead(self, changes: Sequence[ClaimChange]) -> None:
        """On the disk before the kernel is touched, or the kernel is not touched."""
        self._journal(_entry(change) for change in changes)
        for change in changes:
            if change.new is not None:
                self.deletions.call_off(change.key)
                self._remembered[change.key] = change.new
                if touches_kernel(change):
                    self._unsettled.add(change.key)
            else:
                assert change.old is not None
                self.deletions.begin([change.key])
                self._remembered.setdefault(change.key, change.old)

    async def _hand_over(
        self, handler: Handler, steps: Sequence[ClaimChange], errors: dict[ClaimKey, list[str]]
    ) -> None:
        asked = [step for step in steps if step.op is not Op.DELETE or self.deletions.asks(step.key, handler.name)]
        answers = await _answers(handler, asked) if asked else ()
        for step, error in zip(asked, answers, strict=True):
            if step.op is Op.DELETE:
                self.deletions.answered(step.key, handler.name, error)
            if error is not None:
                errors.setdefault(step.key, []).append(self._told(handler, error))

    def _told(self, handler: Handler, error: str) -> str:
        return error if len(self.handlers) == 1 else f"{handler.name}: {error}"

    def _outcome(self, change: ClaimChange, errors: Sequence[str] | None) -> ClaimOutcome:
        if errors:
            self._unsettled.add(change.key)
            if change.new is not None and change.key in self._remembered and change.key not in self.present:
                self.present.put(change.key, Owned(replace(change.new.value, missing=True), *_origin(change.new)))
            return Outcome(change, "; ".join(errors))
        self._unsettled.discard(change.key)
        if change.new is not None:
            self.present.put(change.key, change.new)
        return Outcome(change)

    def _finish(self, keys: Sequence[ClaimKey]) -> None:
        """N5: only what every handler has let go of is forgotten."""
        self._journal(JournalEntry(Entering.DONE, record.write_key(key)) for key in keys)
        for key in keys:
            self.deletions.call_off(key)
            self._remembered.pop(key, None)
            self.present.drop(key)

    def _journal(self, entries: Iterable[JournalEntry]) -> None:
        try:
            self.journal.write(list(entries))
        except JournalUnwritable as sentence:
            raise Away("journal", str(sentence)) from sentence


async def _answers(handler: Handler, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
    waits_for = waiting.unready(handler)  # the gate has asked before, but other handlers took their time since
    return await handler.apply(changes) if waits_for is None else [f"not ready: {waits_for}"] * len(changes)


def is_too_long(change: ClaimChange) -> bool:
    """Whether the journal might have no room for it: then it must not get into the kernel either."""
    if change.new is None:
        return False
    shape, owner = change.new.value.shape, change.new.value.owner
    names = (owner.host, owner.incarnation, owner.endpoint, shape.interface if isinstance(shape, LocalRoute) else "")
    return sum(map(len, names)) > LONGEST_BODY >> 3


def touches_kernel(change: ClaimChange) -> bool:
    """Whether the kernel would show a difference; a change of owner alone is for the journal."""
    if change.old is None or change.new is None or change.old.value.missing:
        return True
    return change.old.value.shape != change.new.value.shape


def is_over(outcome: ClaimOutcome) -> bool:
    return outcome.change.op is Op.DELETE and outcome.error is None


def _entry(change: ClaimChange) -> JournalEntry:
    key = record.write_key(change.key)
    if change.new is not None:
        return JournalEntry(Entering.ADD, key, record.write(change.new))
    assert change.old is not None
    return JournalEntry(Entering.INTENT, key, record.write(change.old))


def _origin(owned: Owned[Claim]) -> tuple[str, int]:
    return owned.source, owned.revision
