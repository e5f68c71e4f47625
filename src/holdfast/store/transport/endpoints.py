"""Order of the members to call, and rejection of stale ones.

Promises: each host has an order of its own, so that a fleet spreads over the members (C55); the member that answered
last is called first; one that failed is avoided for a while (1 s, doubling to 30 s) but still tried when nothing else
is left; an answer older than anything that this process has seen (lower revision or raft term: a stale, wiped or
restored member, C29) is rejected and its member avoided. Only when every member is older than what we saw, or has not
answered for a minute, is the store itself considered restored and the floor reset: the identity gate decides what may
be deleted then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.store.transport.wire import Header

AVOID_FIRST = Duration(seconds=1)
AVOID_MOST = Duration(seconds=30)
GONE_AFTER = Duration(seconds=60)
"""A member that has failed for this long no longer counts: a store that was restored onto fewer members must not be
considered unreachable for ever."""


@dataclass(frozen=True, slots=True, order=True)
class RevisionFloor:
    """The newest revision and raft term that an answer has shown."""

    revision: int = 0
    raft_term: int = 0

    def risen(self, header: Header) -> RevisionFloor:
        return RevisionFloor(max(self.revision, header.revision), max(self.raft_term, header.raft_term))

    def objection(self, header: Header) -> str | None:  # protection: C29
        """Return why an answer to a call made at this floor is rejected. 0 in a header means "not given"."""
        if 0 < header.revision < self.revision:
            return f"is at revision {header.revision}, but revision {self.revision} was seen before"
        if 0 < header.raft_term < self.raft_term:
            return f"is at raft term {header.raft_term}, but term {self.raft_term} was seen before"
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
        if not self._failed_recently(now):  # it may have been fine in between
            self.failing_since, self.behind = now, False
        self.failed_last = now
        self.avoid_until = now + min(AVOID_FIRST * 2 ** min(self.failures, 5), AVOID_MOST)
        self.failures += 1

    def is_discounted(self, now: Instant) -> bool:
        """Return True if it cannot contradict the other members. One that was not called lately still can."""
        return self._failed_recently(now) and (self.behind or now - self.failing_since >= GONE_AFTER)

    def _failed_recently(self, now: Instant) -> bool:
        return self.failed_last != NEVER and now - self.failed_last <= GONE_AFTER


def spread(urls: Sequence[str], host: str) -> Sequence[str]:  # protection: C55
    """Return the endpoints in the order of this host: hashed with its name, so that a fleet of one configuration uses
    all members alike, and so that the clients of a member that fails divide among the others. Without a name the order
    is the configured one."""
    if not host:
        return urls
    return sorted(urls, key=lambda url: hashlib.sha256(f"{host} {url}".encode()).digest())


@dataclass(slots=True)
class MemberList:
    """The endpoints of one store, by URL, with the state of each. Time is passed in."""

    urls: Sequence[str]
    floor: RevisionFloor = RevisionFloor()
    _members: dict[str, _Member] = field(default_factory=dict)
    _first: str = ""

    def __post_init__(self) -> None:
        if not self.urls:
            raise ValueError("no endpoint is configured: set store.endpoints")
        self._members = {url: _Member() for url in self.urls}

    def order(self, now: Instant) -> list[str]:
        """Return all endpoints, the best first and the avoided ones last, the one due soonest before the others."""

        def rank(url: str) -> tuple[bool, Instant, bool]:
            member = self._members[url]
            avoided = member.avoid_until > now
            return avoided, member.avoid_until if avoided else NEVER, url != self._first

        return sorted(self._members, key=rank)

    def avoided(self, url: str, now: Instant) -> bool:
        return self._members[url].avoid_until > now

    def failed(self, url: str, now: Instant) -> None:
        """Avoid the endpoint for a while."""
        self._members[url].failed(now)

    def saw(self, revision: int) -> None:
        """Raise the floor to a revision that a watch delivered: no linearizable answer may be older from now on."""
        if revision > self.floor.revision:
            self.floor = RevisionFloor(revision, self.floor.raft_term)

    def judge(self, url: str, header: Header, asked: RevisionFloor, now: Instant) -> str | None:
        """Record a linearizable answer to a call made when `asked` was the floor; return why it is rejected, if so."""
        member = self._members[url]
        objection = asked.objection(header)
        if objection is None:
            member.cleared()
            self._first = url
            self.floor = self.floor.risen(header)
            return None
        member.failed(now)
        member.behind = True
        if all(other.is_discounted(now) for other in self._members.values()):
            self._reset()
        return objection

    def _reset(self) -> None:
        self.floor = RevisionFloor()
        for member in self._members.values():
            member.cleared()
