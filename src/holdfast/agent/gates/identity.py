"""Identity gate: holds changes whose source is not the store that this host knows, or was restored from a backup.

A store of another fleet, or one without an identity, changes nothing here. A store that is being refilled adds only. A
store that was restored from a backup adds, and replaces a claim only by a newer one: written after the restore was
noticed, or after everything that this host had seen. A repair of what is programmed already is always allowed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.agent.claims import Claim, ClaimKey, RemoteRoute
from holdfast.model.base.region import shown_source
from holdfast.model.base.time import Instant
from holdfast.model.control.identity import StoreRefusal
from holdfast.reconcile import Away, Change, Closed, Op, Owned, Reason
from holdfast.runtime.store_guard import Followed, StoreGuard
from holdfast.runtime.store_memory import MemoryUnreadable
from holdfast.store.api import StoreError
from holdfast.store.identity import ADOPT, Judgement, StoreVerdict

ADOPT_HERE = "holdfast agent adopt --reason WHY"

Journal = Callable[[ClaimKey], Owned[Claim] | None]
"""Returns the claim that was programmed last under a key."""
HostRevision = Callable[[str, str], int]
"""Returns the revision of a host's Node, by source and host."""
Refresh = Callable[[str], Awaitable[None]]
"""Returns when what is known of a source is what its store has now. Raises `Away`."""


async def _nothing_to_refresh(_source: str) -> None:
    return None


class StoreIdentityReason(Reason):
    UNKNOWN = "the identity of its source's store is not known yet"
    FOREIGN_STORE = "its source's store belongs to another fleet"
    STORE_RESTORED = "its source's store was restored from a backup"
    STORE_UNNAMED = "its source's store has no identity yet"
    STORE_FILLING = "its source's store is being refilled"


_REASONS: Mapping[StoreVerdict, StoreIdentityReason] = {
    StoreVerdict.FOREIGN: StoreIdentityReason.FOREIGN_STORE,
    StoreVerdict.RESTORED: StoreIdentityReason.STORE_RESTORED,
    StoreVerdict.UNNAMED: StoreIdentityReason.STORE_UNNAMED,
    StoreVerdict.FILLING: StoreIdentityReason.STORE_FILLING,
}

_OPENS: Mapping[StoreIdentityReason, str] = {
    StoreIdentityReason.UNKNOWN: "wait until the store answers (holdfast doctor)",
    StoreIdentityReason.FOREIGN_STORE: "set store.endpoints and store.region to the right store (holdfast doctor)",
    StoreIdentityReason.STORE_RESTORED: f"{ADOPT}; for this host alone: {ADOPT_HERE}",
    StoreIdentityReason.STORE_UNNAMED: f"the first leader, if the store is empty (holdfast leader); otherwise: {ADOPT}",
    StoreIdentityReason.STORE_FILLING: "wait until the leader has refilled it (holdfast status)",
}

_ADD_AND_KEEP = (StoreVerdict.FILLING, StoreVerdict.RESTORED)


class NotAdoptable(Exception):
    """There is no restored store to accept; the message is one sentence."""


@dataclass
class StoreIdentityGate:
    guards: Mapping[str, StoreGuard]
    """One guard per source."""
    is_active: Callable[[str], bool] = lambda _name: True
    """Returns whether a source counts: one that an operator has forgotten need not have an identity."""
    journaled: Journal = lambda _key: None
    host_revision: HostRevision = lambda _source, _host: 0
    refresh: Refresh = _nothing_to_refresh
    invalidated: asyncio.Event = field(default_factory=asyncio.Event)
    _unread: dict[str, Instant] = field(default_factory=dict)
    """Sources that were listed again since their store's identity was read, with the time of that."""
    _added: set[ClaimKey] = field(default_factory=set)
    """Claims taken from a restored store: their revisions and those of later ones are of one history."""
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def invalidate(self, name: str, now: Instant) -> None:
        """Hold everything from a source until its identity is read again: a new list may be that of another store."""
        self._unread[name] = now
        self._added.clear()
        self.guards[name].forget_history()
        self.invalidated.set()

    def follow(self, name: str, mirrors: Iterable[Followed], now: Instant) -> None:
        """Note what was received from a source; holds everything from it if its identity is newer than its lists."""
        guard = self.guards[name]
        guard.follow(mirrors)
        if guard.has_late_list and name not in self._unread:
            self._unread[name] = now
            self.invalidated.set()

    async def check(self, now: Instant) -> bool:
        """Read the identity of each store; return whether a verdict has changed."""
        before = self.verdicts()
        for name in self.guards:
            async with self._reading:
                await self._check(name, now)
        if self.is_open(now):
            self._added.clear()
        return before != self.verdicts()

    async def adopt(self, now: Instant) -> list[Judgement]:
        """Accept every restored store as it is, for this host alone. Raises `NotAdoptable`, `Away` or `StoreError`."""
        async with self._reading:
            for name in self.guards:
                await self._check(name, now)
            restored = [name for name in self.guards if self.verdict(name) is StoreVerdict.RESTORED]
            if not restored:
                raise NotAdoptable(f"nothing to adopt: {'; '.join(self.sentences()) or 'the store was not read yet'}")
            found = [await self.guards[name].adopt(now) for name in restored]
        self.invalidated.set()  # read at once what was adopted
        refused = [one.sentence for one in found if not one.is_ours]
        if refused:
            raise NotAdoptable(f"this store cannot be adopted: {'; '.join(refused)}")
        return found

    def verdict(self, name: str) -> StoreVerdict | None:
        """Return the verdict on a source's store; None while it is not known."""
        judgement = self.guards[name].judgement
        return None if name in self._unread or judgement is None else judgement.verdict

    def verdicts(self) -> dict[str, StoreVerdict | None]:
        return {name: self.verdict(name) for name in self.guards}

    @property
    def label(self) -> str:
        """Name of the first verdict that is not `ours`; "" if there is none."""
        known = [verdict for verdict in self.verdicts().values() if verdict not in (None, StoreVerdict.OURS)]
        return known[0].value if known and known[0] is not None else ""

    def sentences(self) -> list[str]:
        """Sentences of the last judgements."""
        return [guard.judgement.sentence for guard in self.guards.values() if guard.judgement is not None]

    def closed(self, now: Instant) -> list[Closed]:
        """Refusals that concern whole sources, whatever they want to change."""
        return list(self._refused(now).values())

    def refusals(self, now: Instant) -> list[StoreRefusal]:
        """The same refusals for `holdfast status`, with the fleet of each store."""
        return [
            StoreRefusal(one.reason.label, one.sentence, one.opens, self.guards[name].fleet)
            for name, one in self._refused(now).items()
        ]

    def _refused(self, now: Instant) -> dict[str, Closed]:
        refused = {name: self._refusal(name) for name in self.guards if self.is_active(name)}
        return {
            name: self._closed(name, reason, now)
            for name, reason in refused.items()
            if reason is not None and reason is not StoreIdentityReason.UNKNOWN
        }

    def is_open(self, _now: Instant) -> bool:
        return all(self._refusal(name) is None for name in self.guards if self.is_active(name))

    def judge(self, change: Change[ClaimKey, Claim], tally: Mapping[Op, int], have: int, now: Instant) -> Closed | None:
        for name in self._concerned(change):
            reason = self._refusal(name) if self.is_active(name) else None
            if reason is not None and not self._is_harmless(name, change):
                return self._closed(name, reason, now)
        return None

    def _closed(self, name: str, reason: StoreIdentityReason, now: Instant) -> Closed:
        guard = self.guards[name]
        if reason is StoreIdentityReason.UNKNOWN or guard.judgement is None:
            return Closed("identity", reason, self._unread.get(name, now), _OPENS[reason], shown_source(name))
        return Closed("identity", reason, guard.since, _OPENS[reason], guard.judgement.sentence)

    def _refusal(self, name: str) -> StoreIdentityReason | None:
        verdict = self.verdict(name)
        return StoreIdentityReason.UNKNOWN if verdict is None else _REASONS.get(verdict)

    def _concerned(self, change: Change[ClaimKey, Claim]) -> Iterable[str]:
        """Sources that a change depends on: its owner, and the source that loses a claim to another one. An object
        that is known only by its tag may belong to any."""
        owner = change.owner.source
        if not owner:
            return sorted(self.guards)
        if owner not in self.guards:
            return ()
        loser = change.old.source if change.old is not None else owner
        return (owner, loser) if loser != owner and loser in self.guards else (owner,)

    def _is_harmless(self, name: str, change: Change[ClaimKey, Claim]) -> bool:
        """Return whether a source may make this change although its store is refilled or was restored."""
        verdict, new = self.verdict(name), change.new
        if verdict not in _ADD_AND_KEEP or new is None or new.source != name:
            return False
        if change.op is not Op.CREATE:
            if self._is_repair(change, new):
                return True
            if verdict is not StoreVerdict.RESTORED or not self._is_newer(self.guards[name], change, new):
                return False
        self._added.add(change.key)
        return True

    def _is_repair(self, change: Change[ClaimKey, Claim], new: Owned[Claim]) -> bool:
        """Return whether this is what was programmed last, or is programmed by an agent that lost its journal."""
        known, old = self.journaled(change.key), change.old
        if known is not None:
            return known.value == new.value
        return old is not None and not old.source and old.value.shape == new.value.shape

    def _is_newer(self, guard: StoreGuard, change: Change[ClaimKey, Claim], new: Owned[Claim]) -> bool:
        """Return whether this was written after the restore was noticed, or after everything that was seen before."""
        if guard.noticed is None:
            return False
        if max(new.revision, self._gateway_revision(change, new)) > guard.noticed:
            return True
        old = change.old
        seen = 0 if guard.known is None or change.key in self._added else guard.known.revision
        return old is not None and old.source == new.source and new.revision > max(old.revision, seen)

    def _gateway_revision(self, change: Change[ClaimKey, Claim], new: Owned[Claim]) -> int:
        """Revision of the Node that decides how an endpoint is reached that stays where it is."""
        old, owner = change.old, new.value.owner
        if old is None or not owner.endpoint or not isinstance(new.value.shape, RemoteRoute):
            return 0
        stays = (old.value.owner.host, old.value.owner.endpoint) == (owner.host, owner.endpoint)
        return self.host_revision(new.source, owner.host) if stays else 0

    async def _check(self, name: str, now: Instant) -> None:
        guard = self.guards[name]
        if guard.judgement is None:
            self._unread.setdefault(name, now)
        try:
            reading = await guard.read()
            if guard.is_released_by(reading):
                await self.refresh(name)
            if self.invalidated.is_set():
                return  # this answer may be older than the list that invalidated it; it is read again at once
            await guard.take(reading, now)
        except (Away, StoreError):
            return  # the last verdict still holds: an unreachable store changes nothing
        except MemoryUnreadable as error:
            guard.noticed = None
            guard.set(Judgement(StoreVerdict.RESTORED, str(error), ADOPT_HERE), now)
        if not self.invalidated.is_set() and not guard.has_late_list:
            self._unread.pop(name, None)
