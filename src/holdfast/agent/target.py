"""Target of the agent's loop: the kernel and any other handlers of claims, behind the journal.

An object is in the journal before the kernel is touched, and leaves it only when every handler has acknowledged its
delete (N5, N11). The state of the target is the union of the journal and the objects with our tag: the kernel gives the
shape, the journal the owner. A claim that only changes its owner is journalled, and the kernel is not touched.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import structlog
from msgspec.structs import replace

from holdfast.agent.claims import Claim, ClaimKey, LocalRoute, Shape, in_order, portions
from holdfast.agent.dataplane.api import ClaimChange, Handler, HostDataplane
from holdfast.agent.gates import readiness
from holdfast.agent.journal import Journal
from holdfast.agent.journal.codec import ClaimEntry, Entry
from holdfast.agent.journal.contents import JournalContents
from holdfast.agent.journal.frames import LONGEST_BODY, EntryKind
from holdfast.agent.journal.journal import JournalUnwritable
from holdfast.agent.pending_deletes import PendingDeletes
from holdfast.agent.present import Present
from holdfast.reconcile import Away, Op, Outcome, Owned
from holdfast.runtime.cooperative import Steps, in_turns
from holdfast.store.mirror.gc_pause import gc_paused

log = structlog.get_logger(__name__)

ClaimOutcome = Outcome[ClaimKey, Claim]
_PAGE = 1_000
TOO_LONG = "the name of its owner or its interface is too long for the journal"


class JournaledTarget:
    def __init__(
        self, journal: Journal, dataplane: HostDataplane, others: Sequence[Handler] = (), page: int = _PAGE
    ) -> None:
        """`page` is the number of objects that are compared without a break."""
        self.journal = journal
        self.dataplane = dataplane
        self.handlers: Sequence[Handler] = (dataplane, *others)
        self.present = Present()
        self.pending_deletes = PendingDeletes([handler.name for handler in self.handlers])
        self._journaled = JournalContents()
        self._was_read = False
        self._order: list[ClaimKey] = []
        """Keys of everything that the last full read found."""
        self._page = page
        self._unreadable: set[ClaimKey] = set()
        """Keys whose records are of another release."""
        self._unacknowledged: set[ClaimKey] = set()
        """Keys whose last addition not every handler has acknowledged, as far as is known."""
        self._load_journal()

    def _load_journal(self) -> None:
        """Load what earlier runs left. Nothing of it is programmed; bodies are decoded when needed."""
        # protection: N1
        self._journaled = self.journal.contents
        if len(self.handlers) > 1:
            # Only the kernel can be read back; the other handlers may lack any of it.
            self._unacknowledged.update(key for key in self.journal.live if not isinstance(key, bytes))
        self.pending_deletes.begin([key for key in self._journaled.deleting if not isinstance(key, bytes)])
        if unknown := self._journaled.unreadable_keys():
            log.error("journal has records of another release; they stay, and are not used", records=unknown)

    def load(self, key: ClaimKey) -> Owned[Claim] | None:
        """Return the journal's claim on this key; None if there is none that this release understands."""
        owned = self._journaled.claim(key)
        if owned is None and key in self._journaled and key not in self._unreadable:
            self._unreadable.add(key)
            log.error("journal record is of another release; it stays, and is not used", key=str(key))
        return owned

    def journaled(self) -> Iterator[tuple[ClaimKey, Owned[Claim]]]:
        """Claims that earlier runs created or began to delete."""
        for key in self._journaled.claim_keys():
            if (owned := self.load(key)) is not None:
                yield key, owned

    def owner_of(self, key: ClaimKey) -> Owned[Claim] | None:
        """Return the claim that owns this key; None while it is being deleted."""
        return None if key in self.pending_deletes else self.load(key)

    async def read(self, after: ClaimKey | None) -> tuple[Sequence[tuple[ClaimKey, Owned[Claim]]], ClaimKey | None]:
        """The first page reads everything; the others are of the same moment, apart from our own changes since."""
        await asyncio.sleep(0)  # other tasks get a turn between two pages
        if after is None:
            await self._read_all()
        start = 0 if after is None else bisect_right(self._order, after)
        end, claims = start + self._page, self.present.claims
        keys = self._order[start:end]
        page = [(key, owned) for key, owned in zip(keys, map(claims.get, keys), strict=True) if owned is not None]
        return page, self._order[end - 1] if end < len(self._order) else None

    async def _read_all(self) -> None:
        # The first read decodes everything; later ones only compare.
        with gc_paused(len(self._journaled), lasting=not self._was_read):
            shapes = await self.dataplane.read()
            self._order = list(await in_turns(self._merge_all(shapes)))
            self._was_read = True

    async def get(self, keys: Collection[ClaimKey]) -> Mapping[ClaimKey, Owned[Claim]]:
        shapes = await self.dataplane.read(keys)
        found = {key: owned for key in keys if (owned := self._merged(key, shapes)) is not None}
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
            await self._hand_to(handler, steps, errors)
        outcomes = [self._outcome(change, errors.get(change.key)) for change in ready]
        self._forget([outcome.change.key for outcome in outcomes if is_acknowledged(outcome)])
        return outcomes

    def _merge_all(self, shapes: Mapping[ClaimKey, Shape]) -> Steps[Mapping[ClaimKey, Owned[Claim]]]:
        """Merge journal and kernel, in order. Meanwhile no other read, get or apply runs: the loop calls them one at a
        time."""
        yield
        known, live, deleting = self._journaled.claim_keys(), self._journaled.live, self._journaled.deleting
        unknown = [key for key in shapes if key not in live and key not in deleting]
        yield
        found: dict[ClaimKey, Owned[Claim]] = {}
        for some in portions((yield from in_order([*known, *unknown]))):
            self._merge(some, shapes, found)
            yield
        yield from self.present.replace_all(found)
        return found

    def _merge(
        self, keys: Sequence[ClaimKey], shapes: Mapping[ClaimKey, Shape], found: dict[ClaimKey, Owned[Claim]]
    ) -> None:
        """Merge many at once. Nearly all are in the kernel as the journal has them, and in no other state."""
        journaled, present = self._journaled.claims(keys), list(map(shapes.get, keys))
        is_settled = not (self.pending_deletes or self._unacknowledged)
        if is_settled and [known and known.value.shape for known in journaled] == present:
            found |= {key: known for key, known in zip(keys, journaled, strict=True) if known is not None}
            return
        for key in keys:
            if (merged := self._merged(key, shapes)) is not None:
                found[key] = merged

    def _merged(self, key: ClaimKey, shapes: Mapping[ClaimKey, Shape]) -> Owned[Claim] | None:
        """Take the owner from the journal, and the shape from the kernel."""
        known, shape = self.load(key), shapes.get(key)
        if known is None:
            return None if shape is None else Owned(Claim(shape), "", 0)
        claim = known.value
        if shape is None or key in self.pending_deletes or key in self._unacknowledged:
            claim = replace(claim, shape=shape or claim.shape, missing=True)
        elif shape != claim.shape:
            claim = replace(claim, shape=shape)
        return known if claim is known.value else Owned(claim, known.source, known.revision)

    def _write_ahead(self, changes: Sequence[ClaimChange]) -> None:
        """Journal the changes before the kernel is touched; if that fails, the kernel is not touched."""
        self._journal(_entry(change) for change in changes)
        for change in changes:
            if change.new is not None:
                self.pending_deletes.cancel(change.key)
                if touches_kernel(change):
                    self._unacknowledged.add(change.key)
            else:
                self.pending_deletes.begin([change.key])

    async def _hand_to(self, handler: Handler, steps: Sequence[ClaimChange], errors: dict[ClaimKey, list[str]]) -> None:
        todo = [
            step
            for step in steps
            if step.op is not Op.DELETE or self.pending_deletes.is_pending(step.key, handler.name)
        ]
        answers = await _apply(handler, todo) if todo else ()
        for step, error in zip(todo, answers, strict=True):
            if step.op is Op.DELETE:
                self.pending_deletes.record(step.key, handler.name, error)
            if error is not None:
                errors.setdefault(step.key, []).append(self._message(handler, error))

    def _message(self, handler: Handler, error: str) -> str:
        return error if len(self.handlers) == 1 else f"{handler.name}: {error}"

    def _outcome(self, change: ClaimChange, errors: Sequence[str] | None) -> ClaimOutcome:
        if errors:
            self._unacknowledged.add(change.key)
            if change.new is not None and change.key in self._journaled and change.key not in self.present:
                self.present.put(change.key, Owned(replace(change.new.value, missing=True), *_origin(change.new)))
            return Outcome(change, "; ".join(errors))
        self._unacknowledged.discard(change.key)
        if change.new is not None:
            self.present.put(change.key, change.new)
        return Outcome(change)

    def _forget(self, keys: Sequence[ClaimKey]) -> None:
        """Take off the journal what every handler has deleted (N5)."""
        self._journal(ClaimEntry(EntryKind.DONE, key) for key in keys)
        for key in keys:
            self.pending_deletes.cancel(key)
            self.present.drop(key)

    def _journal(self, entries: Iterable[Entry]) -> None:
        try:
            self.journal.write(list(entries))
        except JournalUnwritable as error:
            raise Away("journal", str(error)) from error


async def _apply(handler: Handler, changes: Sequence[ClaimChange]) -> Sequence[str | None]:
    waits_for = readiness.unready(handler)  # the gate has asked, but other handlers took their time since
    return await handler.apply(changes) if waits_for is None else [f"not ready: {waits_for}"] * len(changes)


def is_too_long(change: ClaimChange) -> bool:
    """Return whether the journal might have no room for it: then it must not get into the kernel either."""
    if change.new is None:
        return False
    shape, owner = change.new.value.shape, change.new.value.owner
    names = (owner.host, owner.incarnation, owner.endpoint, shape.interface if isinstance(shape, LocalRoute) else "")
    return sum(map(len, names)) > LONGEST_BODY >> 3


def touches_kernel(change: ClaimChange) -> bool:
    """Return whether the kernel would show a difference; a change of owner alone is for the journal."""
    if change.old is None or change.new is None or change.old.value.missing:
        return True
    return change.old.value.shape != change.new.value.shape


def is_acknowledged(outcome: ClaimOutcome) -> bool:
    """Return whether a delete is over: every handler has acknowledged it."""
    return outcome.change.op is Op.DELETE and outcome.error is None  # protection: N5


def _entry(change: ClaimChange) -> ClaimEntry:
    if change.new is not None:
        return ClaimEntry(EntryKind.ADD, change.key, change.new)
    assert change.old is not None
    claim = change.old.value
    found = replace(claim, missing=False) if claim.missing else claim
    return ClaimEntry(EntryKind.DELETING, change.key, Owned(found, *_origin(change.old)))


def _origin(owned: Owned[Claim]) -> tuple[str, int]:
    return owned.source, owned.revision
