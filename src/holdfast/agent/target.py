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
from holdfast.agent.journal import Journal, codec
from holdfast.agent.journal.frames import LONGEST_BODY, EntryKind, JournalEntry
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
        self._journaled: dict[ClaimKey, Owned[Claim] | bytes] = {}
        """Encoded until first used."""
        self._was_read = False
        self._order: list[ClaimKey] = []
        """Keys of everything that the last full read found."""
        self._page = page
        self._unacknowledged: set[ClaimKey] = set()
        """Keys whose last addition not every handler has acknowledged, as far as is known."""
        self._load_journal()

    def _load_journal(self) -> None:
        """Load what earlier runs left. Nothing of it is programmed; bodies are decoded when needed."""
        # protection: N1
        live = self.journal.live
        with gc_paused(len(live)):
            keys = codec.read_keys(live)
            self._journaled = {key: body for key, body in zip(keys, live.values(), strict=True) if key is not None}
        if len(self.handlers) > 1:
            # Only the kernel can be read back; the other handlers may lack any of it.
            self._unacknowledged.update(self._journaled)
        for text, body in self.journal.deleting.items():
            key = codec.read_key(text)
            if key is not None:
                self._journaled[key] = body
                self.pending_deletes.begin([key])
        unknown = len(live) + len(self.journal.deleting) - len(self._journaled)
        if unknown:
            log.error("journal has records of another release; they stay, and are not used", records=unknown)

    def load(self, key: ClaimKey) -> Owned[Claim] | None:
        """Return the journal's claim on this key; None if there is none that this release understands."""
        known = self._journaled.get(key)
        if isinstance(known, bytes):
            owned = codec.read(known)
            if owned is None:
                log.error("journal record is of another release; it stays, and is not used", key=str(key))
                del self._journaled[key]
                return None
            self._journaled[key] = owned
            return owned
        return known

    def journaled(self) -> Iterator[tuple[ClaimKey, Owned[Claim]]]:
        """Claims that earlier runs created or began to delete."""
        for key in list(self._journaled):
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
        unknown = [key for key in shapes if key not in self._journaled]
        yield
        found: dict[ClaimKey, Owned[Claim]] = {}
        for some in portions((yield from in_order([*self._journaled, *unknown]))):
            found |= self._merge(some, shapes)
            yield
        yield from self.present.replace_all(found)
        return found

    def _merge(self, keys: Sequence[ClaimKey], shapes: Mapping[ClaimKey, Shape]) -> dict[ClaimKey, Owned[Claim]]:
        """Merge many at once. Nearly all are in the kernel as the journal has them, and in no other state."""
        found: dict[ClaimKey, Owned[Claim]] = {}
        is_settled = not (self.pending_deletes or self._unacknowledged)
        for key, known, shape in zip(keys, self._load_all(keys), map(shapes.get, keys), strict=True):
            if is_settled and type(known) is Owned and known.value.shape == shape:
                found[key] = known
            elif (merged := self._merged(key, shapes)) is not None:
                found[key] = merged
        return found

    def _load_all(self, keys: Sequence[ClaimKey]) -> Sequence[Owned[Claim] | bytes | None]:
        """Return the journal's claims on these keys. What is still encoded is decoded all at once, unless one of them
        cannot be."""
        known = list(map(self._journaled.get, keys))
        encoded = [(key, body) for key, body in zip(keys, known, strict=True) if type(body) is bytes]
        claims = codec.read_all(body for _, body in encoded)
        if claims is None:
            return known
        decoded = dict(zip((key for key, _ in encoded), claims, strict=True))
        self._journaled.update(decoded)
        return [decoded.get(key, old) for key, old in zip(keys, known, strict=True)] if decoded else known

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
                self._journaled[change.key] = change.new
                if touches_kernel(change):
                    self._unacknowledged.add(change.key)
            else:
                assert change.old is not None
                self.pending_deletes.begin([change.key])
                self._journaled.setdefault(change.key, change.old)

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
        self._journal(JournalEntry(EntryKind.DONE, codec.write_key(key)) for key in keys)
        for key in keys:
            self.pending_deletes.cancel(key)
            self._journaled.pop(key, None)
            self.present.drop(key)

    def _journal(self, entries: Iterable[JournalEntry]) -> None:
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


def _entry(change: ClaimChange) -> JournalEntry:
    key = codec.write_key(change.key)
    if change.new is not None:
        return JournalEntry(EntryKind.ADD, key, codec.write(change.new))
    assert change.old is not None
    return JournalEntry(EntryKind.DELETING, key, codec.write(change.old))


def _origin(owned: Owned[Claim]) -> tuple[str, int]:
    return owned.source, owned.revision
