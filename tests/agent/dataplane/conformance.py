"""What every dataplane of the agent must do. One suite for the one in memory, the one that is a file, and Linux.

A new dataplane is proven by a test module that hands each of `CASES` a `Ground`: a fresh, empty dataplane, and what of
the machine around it can be counted on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from holdfast.agent.claims import (
    Claim,
    ClaimKey,
    FdbEntry,
    LocalRoute,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    Owner,
    RemoteRoute,
    Shape,
    VxlanDevice,
    device,
    forwarding,
    neighbour,
    nexthop,
    route,
)
from holdfast.agent.dataplane.api import ClaimChange, HostDataplane
from holdfast.reconcile import Change, Op, Owned

T1, M1, U1 = "10.99.0.1", "66:00:00:00:00:01", "192.0.2.101"
T2, M2, U2 = "10.99.0.2", "66:00:00:00:00:02", "192.0.2.102"
T6, M6, U6 = "fd99::1", "66:00:00:00:06:01", "2001:db8::101"
OWNER = Owner("peer-1", "uid-1")


@dataclass(frozen=True, slots=True)
class Ground:
    """The dataplane under test. It is empty; two interfaces exist, one does not, and two hosts are on our segment."""

    dataplane: HostDataplane
    interface: str = "tap1"
    second: str = "tap2"
    absent: str | None = None
    """An interface that does not exist; None where every one does."""
    direct: str = "192.0.2.201"
    direct6: str = "2001:db8::201"


Objects = Sequence[tuple[ClaimKey, Shape]]


def tunnel(address: str, mac: str, underlay: str) -> Objects:
    """All objects of a peer that is reached through the tunnel, and our own end of it."""
    family = 6 if ":" in underlay else 4
    return [
        (device(family), VxlanDevice(f"02:00:00:00:00:0{family}")),
        (forwarding(family, mac), FdbEntry(underlay)),
        (neighbour(address), NeighbourEntry(mac)),
        (nexthop(address), NexthopEntry(Mode.VXLAN)),
    ]


def straight(address: str) -> Objects:
    return [(nexthop(address), NexthopEntry(Mode.DIRECT))]


def change(key: ClaimKey, new: Shape | None, old: Shape | None = None) -> ClaimChange:
    op = Op.DELETE if new is None else Op.CREATE if old is None else Op.REPLACE
    return Change(op, key, _owned(old), _owned(new))


def _owned(shape: Shape | None) -> Owned[Claim] | None:
    return None if shape is None else Owned(Claim(shape, OWNER), "region", 1)


async def made(dataplane: HostDataplane, objects: Objects) -> None:
    answers = await dataplane.apply([change(key, shape) for key, shape in objects])
    assert list(answers) == [None] * len(objects)


async def removed(dataplane: HostDataplane, objects: Objects) -> None:
    answers = await dataplane.apply([change(key, None, shape) for key, shape in reversed(objects)])
    assert list(answers) == [None] * len(objects)


def full(ground: Ground) -> Objects:
    return [
        *tunnel(T1, M1, U1),
        *tunnel(T6, M6, U6),
        *straight(ground.direct),
        *straight(ground.direct6),
        (route("10.65.0.1/32"), RemoteRoute(T1)),
        (route("10.65.1.0/26"), RemoteRoute(T1)),
        (route("10.65.0.2/32"), RemoteRoute(ground.direct)),
        (route("fd65::1/128"), RemoteRoute(T6)),
        (route("fd65:0:0:1::/64"), RemoteRoute(ground.direct6)),
        (route("10.65.0.3/32"), LocalRoute(ground.interface)),
        (route("fd65::3/128"), LocalRoute(ground.interface)),
    ]


async def it_is_ready(ground: Ground) -> None:
    assert ground.dataplane.ready() is None
    assert ground.dataplane.name
    assert ground.dataplane.describe().name


async def an_empty_one_holds_nothing(ground: Ground) -> None:
    assert await ground.dataplane.read() == {}


async def what_was_made_is_read_back(ground: Ground) -> None:
    await made(ground.dataplane, full(ground))
    assert await ground.dataplane.read() == dict(full(ground))


async def what_it_needs_itself_is_made_like_all_else(ground: Ground) -> None:
    own = ground.dataplane.describe().own
    await made(ground.dataplane, list(own.items()))
    assert await ground.dataplane.read() == own
    await removed(ground.dataplane, list(own.items()))
    assert await ground.dataplane.read() == {}


async def single_objects_can_be_read(ground: Ground) -> None:
    await made(ground.dataplane, full(ground))
    wanted = {route("10.65.0.1/32"), nexthop(T1), neighbour(T6), forwarding(4, M1), route("10.65.9.9/32")}
    found = await ground.dataplane.read(wanted)
    assert found == {key: shape for key, shape in full(ground) if key in wanted}


async def making_a_thing_twice_is_making_it_once(ground: Ground) -> None:
    await made(ground.dataplane, full(ground))
    await made(ground.dataplane, full(ground))
    assert await ground.dataplane.read() == dict(full(ground))


async def removing_what_is_not_there_is_done(ground: Ground) -> None:
    await removed(ground.dataplane, full(ground))
    assert await ground.dataplane.read() == {}


async def what_was_removed_is_gone_and_nothing_else(ground: Ground) -> None:
    await made(ground.dataplane, full(ground))
    gone: Objects = [(route("10.65.0.1/32"), RemoteRoute(T1)), (route("fd65::3/128"), LocalRoute(ground.interface))]
    await removed(ground.dataplane, gone)
    assert await ground.dataplane.read() == {k: v for k, v in full(ground) if k not in dict(gone)}


async def all_of_it_can_be_removed(ground: Ground) -> None:
    await made(ground.dataplane, full(ground))
    await removed(ground.dataplane, full(ground))
    assert await ground.dataplane.read() == {}


async def a_route_moves_to_another_nexthop(ground: Ground) -> None:
    await made(ground.dataplane, [*tunnel(T1, M1, U1), *tunnel(T2, M2, U2), (route("10.65.0.1/32"), RemoteRoute(T1))])
    moved = change(route("10.65.0.1/32"), RemoteRoute(T2), RemoteRoute(T1))
    assert list(await ground.dataplane.apply([moved])) == [None]
    await removed(ground.dataplane, tunnel(T1, M1, U1)[1:])
    assert await ground.dataplane.read() == {**dict(tunnel(T2, M2, U2)), route("10.65.0.1/32"): RemoteRoute(T2)}


async def a_route_moves_here_and_away_again(ground: Ground) -> None:
    key, remote, local = route("10.65.0.1/32"), RemoteRoute(T1), LocalRoute(ground.interface)
    await made(ground.dataplane, [*tunnel(T1, M1, U1), (key, remote)])
    assert list(await ground.dataplane.apply([change(key, local, remote)])) == [None]
    assert (await ground.dataplane.read([key])) == {key: local}
    assert list(await ground.dataplane.apply([change(key, LocalRoute(ground.second), local)])) == [None]
    assert (await ground.dataplane.read([key])) == {key: LocalRoute(ground.second)}
    assert list(await ground.dataplane.apply([change(key, remote, LocalRoute(ground.second))])) == [None]
    assert (await ground.dataplane.read([key])) == {key: remote}


async def a_tunnel_address_changes_hands(ground: Ground) -> None:
    """N8: the new owner has another MAC behind another underlay address, and the routes stay."""
    await made(ground.dataplane, [*tunnel(T1, M1, U1), (route("10.65.0.1/32"), RemoteRoute(T1))])
    answers = await ground.dataplane.apply(
        [
            change(forwarding(4, M2), FdbEntry(U2)),
            change(neighbour(T1), NeighbourEntry(M2), NeighbourEntry(M1)),
            change(forwarding(4, M1), None, FdbEntry(U1)),
        ]
    )
    assert list(answers) == [None, None, None]
    expected = {**dict(tunnel(T1, M2, U2)), route("10.65.0.1/32"): RemoteRoute(T1)}
    assert await ground.dataplane.read() == expected


async def a_mac_moves_to_another_underlay_address(ground: Ground) -> None:
    await made(ground.dataplane, tunnel(T1, M1, U1))
    assert list(await ground.dataplane.apply([change(forwarding(4, M1), FdbEntry(U2), FdbEntry(U1))])) == [None]
    assert (await ground.dataplane.read([forwarding(4, M1)])) == {forwarding(4, M1): FdbEntry(U2)}


async def a_refusal_is_of_its_object_and_the_others_are_made(ground: Ground) -> None:
    """A route by a nexthop that is not there is refused, in one sentence."""
    await made(ground.dataplane, tunnel(T1, M1, U1))
    prefixes = ["10.65.0.1/32", "10.65.0.2/32", "10.65.0.3/32"]
    vias = [T1, T2, T1]
    answers = await ground.dataplane.apply(
        [change(route(prefix), RemoteRoute(via)) for prefix, via in zip(prefixes, vias, strict=True)]
    )
    assert [answer is None for answer in answers] == [True, False, True]
    assert "\n" not in str(answers[1])
    assert {key for key in await ground.dataplane.read() if key.kind.name == "ROUTE"} == {
        route("10.65.0.1/32"),
        route("10.65.0.3/32"),
    }


async def thousands_go_in_at_once(ground: Ground) -> None:
    routes = [(route(f"10.66.{n >> 8}.{n & 255}/32"), RemoteRoute(T1)) for n in range(3_000)]
    await made(ground.dataplane, [*tunnel(T1, M1, U1), *routes])
    assert await ground.dataplane.read() == dict([*tunnel(T1, M1, U1), *routes])
    await removed(ground.dataplane, routes[:1_500])
    assert len(await ground.dataplane.read()) == 1_504


async def an_interface_that_is_absent_blocks_its_routes_without_a_crash(ground: Ground) -> None:
    key, there = route("10.65.0.3/32"), LocalRoute(ground.interface)
    assert ground.dataplane.blocked_by(key, there) is None
    if ground.absent is not None:
        missing = LocalRoute(ground.absent)
        assert ground.absent in str(ground.dataplane.blocked_by(key, missing))
        (answer,) = await ground.dataplane.apply([change(key, missing)])
        assert answer is not None
    assert await ground.dataplane.read() == {}


Case = Callable[[Ground], Awaitable[None]]

CASES: Sequence[Case] = (
    it_is_ready,
    an_empty_one_holds_nothing,
    what_was_made_is_read_back,
    what_it_needs_itself_is_made_like_all_else,
    single_objects_can_be_read,
    making_a_thing_twice_is_making_it_once,
    removing_what_is_not_there_is_done,
    what_was_removed_is_gone_and_nothing_else,
    all_of_it_can_be_removed,
    a_route_moves_to_another_nexthop,
    a_route_moves_here_and_away_again,
    a_tunnel_address_changes_hands,
    a_mac_moves_to_another_underlay_address,
    a_refusal_is_of_its_object_and_the_others_are_made,
    thousands_go_in_at_once,
    an_interface_that_is_absent_blocks_its_routes_without_a_crash,
)
