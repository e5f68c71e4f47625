"""Members that must not serve a watch stream any longer."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.store.boottime import boot_now
from holdfast.store.transport import wire
from holdfast.store.transport.gateway import Connection, Gateway
from holdfast.store.transport.http import MemberAddress
from holdfast.store.watch.liveness import StreamCheck
from holdfast.store.watch.stream import WatchStream

URL = "http://127.0.0.1:2379"
MEMBER, OTHER = 7, 8


@pytest.mark.parametrize(
    ("member", "leader", "revision", "word"),
    [
        (MEMBER, OTHER, 100, None),
        (MEMBER, OTHER, 101, None),
        (OTHER, OTHER, 100, "another member answers"),
        (MEMBER, 0, 100, "has no leader"),
        (MEMBER, OTHER, 99, "is behind: at revision 99, the cluster was at 100"),
    ],
)
def test_a_member_is_left_when_it_is_another_one_leaderless_or_behind(
    member: int, leader: int, revision: int, word: str | None
) -> None:
    async def main() -> None:
        gateway = Gateway(Connection((URL,)), boot_now)
        stream = WatchStream(MemberAddress.parse(URL), wire.WATCH, b"", "")
        check = StreamCheck(gateway, URL, MEMBER, stream, None, _revision_before=100)
        objection = check.objection(wire.StatusReply(wire.Header(1, member, revision, 2), leader=leader))
        assert (objection is None) if word is None else (word in (objection or ""))

    asyncio.run(main())
