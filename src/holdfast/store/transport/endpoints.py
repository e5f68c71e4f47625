"""Which member to ask next, and which one not to believe.

Promises: the member that served last is asked first; one that failed is avoided for a while (1 s, doubling to 30 s)
but still tried when nothing else is left; and an answer that stands before something this process has already seen
(lower revision or raft term: a stale, wiped or restored member, C29) is not believed and its member is left. Only when
every member stands before what we saw, or has not answered for a minute, is the store itself taken as restored, and the
memory starts anew: whether anything may be deleted then is the identity gate's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.store.transport.wire import Header

AVOID_FIRST = Duration(seconds=1)
AVOID_MOST = Duration(seconds=30)
GONE_AFTER = Duration(seconds=60)
"""A member that has failed for so long does not speak for the store any more: one that was restored onto fewer members
must not be taken as away for ever."""


@dataclass(frozen=True, slots=True, order=True)
class RevisionFloor:
    """The newest state of the store that an answer has shown."""

    revision: int = 0
    raft_term: int = 0

    def risen(self, header: Header) -> RevisionFloor:
        return RevisionFloor(max(self.revision, header.revision), max(self.raft_term, header.raft_term))

    def objection(self, header: Header) -> str | None:
        """Why an answer sent after this floor was known cannot be believed. 0 in a header means "not said"."""
        if 0 < header.revision < self.revision:
            return f"stands at revision {header.revision}, but revision {self.revision} was seen before"
        if 0 < header.raft_term < self.raft_term:
            return f"stands at raft term {header.raft_term}, but term {self.raft_term} was seen before"
        return None


@dataclass(slots=True)
class _Member:
    failures: int = 0
    failing_since: Instant = NEVER
    failed_last: Instant = NEVER
    avoid_until: Instant = NEVER
    behind: bool = False

    def cleared(self) -> None:
        self.failures, self.failed_last, self.avoid_until, self.behind = 0, NEVER, NEVER, False

    def failed(self, now: Instant) -> None:
        if not self._lately(now):  # nobody knows what it would have said in between
            self.failing_since, self.behind = now, False
        self.failed_last = now
        self.avoid_until = now + min(AVOID_FIRST * 2 ** min(self.failures, 5), AVOID_MOST)
        self.failures += 1

    def silent(self, now: Instant) -> bool:
        """Whether nothing it says could speak against the others. One that was not asked lately might."""
        return self._lately(now) and (self.behind or now - self.failing_since >= GONE_AFTER)

    def _lately(self, now: Instant) -> bool:
        return self.failed_last != NEVER and now - self.failed_last <= GONE_AFTER


@dataclass(slots=True)
class MemberList:
    """The endpoints of one store, by URL, with what was learned about each. Time is handed in."""

    urls: Sequence[str]
    floor: RevisionFloor = RevisionFloor()
    _members: dict[str, _Member] = field(default_factory=dict)
    _first: str = ""

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("no endpoint is given: set store.endpoints")
        self._members = {url: _Member() for url in self.urls}

    def order(self, now: Instant) -> list[str]:
        """All endpoints, the best first; those to be avoided last, the one that is due soonest before the others."""

        def rank(url: str) -> tuple[bool, Instant, bool]:
            member = self._members[url]
            avoided = member.avoid_until > now
            return avoided, member.avoid_until if avoided else NEVER, url != self._first

        return sorted(self._members, key=rank)

    def avoided(self, url: str, now: Instant) -> bool:
        return self._members[url].avoid_until > now

    def failed(self, url: str, now: Instant) -> None:
        """Leaves the endpoint for a while."""
        self._members[url].failed(now)

    def saw(self, revision: int) -> None:
        """A watch has shown this revision: no linearizable answer may stand before it from now on."""
        if revision > self.floor.revision:
            self.floor = RevisionFloor(revision, self.floor.raft_term)

    def judge(self, url: str, header: Header, asked: RevisionFloor, now: Instant) -> str | None:
        """Takes note of a linearizable answer to a question put when `asked` was the floor, or says why it is not
        believed."""
        member = self._members[url]
        objection = asked.objection(header)
        if objection is None:
            member.cleared()
            self._first = url
            self.floor = self.floor.risen(header)
            return None
        member.failed(now)
        member.behind = True
        if all(other.silent(now) for other in self._members.values()):
            self._start_anew()
        return objection

    def _start_anew(self) -> None:
        self.floor = RevisionFloor()
        for member in self._members.values():
            member.cleared()
