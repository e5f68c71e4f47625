"""What every dataplane must do. One suite for the one in memory, dry-run, and the real ones.

A new dataplane is proven by a test module that hands `CASES` a factory: each case gets a fresh, empty dataplane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings, backend
from holdfast.reconcile import Change, Op, Owned

V4 = Vip.of("192.0.2.1", "tcp", 80)
V6 = Vip.of("2001:db8::1", "udp", 53)
OTHER = Vip.of("192.0.2.2", "tcp", 443)
ONE, TWO = backend("10.0.0.1", 8080), backend("10.0.0.2", 8080)
SIX = backend("2001:db8::53", 53)


def change(key: VipKey, new: Value | None, old: Value | None = None) -> Change[VipKey, Value]:
    op = Op.DELETE if new is None else Op.CREATE if old is None else Op.REPLACE
    return Change(op, key, _owned(old), _owned(new))


def _owned(value: Value | None) -> Owned[Value] | None:
    return None if value is None else Owned(value, "file", 1)


async def made(dataplane: VipDataplane, *changes: Change[VipKey, Value]) -> None:
    assert list(await dataplane.apply(changes)) == [None] * len(changes)


FULL = (
    change(VipKey(V4), VipSettings()),
    change(VipKey(V4, ONE), BackendEntry(100)),
    change(VipKey(V4, TWO), BackendEntry(50)),
    change(VipKey(V6), VipSettings(sticky=True)),
    change(VipKey(V6, SIX), BackendEntry(1)),
)


async def an_empty_one_holds_nothing(dataplane: VipDataplane) -> None:
    assert await dataplane.read() == {}


async def what_was_made_is_read_back(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    assert await dataplane.read() == {one.key: one.new.value for one in FULL if one.new is not None}


async def one_vip_can_be_read_alone(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    assert set(await dataplane.read({V6})) == {VipKey(V6), VipKey(V6, SIX)}
    assert await dataplane.read({OTHER}) == {}


async def making_a_thing_twice_is_making_it_once(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    before = await dataplane.read()
    await made(dataplane, *FULL)
    assert await dataplane.read() == before


async def a_weight_changes_and_nothing_else(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    before = dict(await dataplane.read())
    await made(dataplane, change(VipKey(V4, ONE), BackendEntry(30), BackendEntry(100)))
    assert await dataplane.read() == {**before, VipKey(V4, ONE): BackendEntry(30)}


async def a_weight_of_zero_stays_an_entry(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL, change(VipKey(V4, ONE), BackendEntry(0), BackendEntry(100)))
    assert (await dataplane.read())[VipKey(V4, ONE)] == BackendEntry(0)


async def killed_flows_are_remembered_as_level(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL, change(VipKey(V4, ONE), BackendEntry(0, kill=True), BackendEntry(100)))
    assert (await dataplane.read())[VipKey(V4, ONE)] == BackendEntry(0, kill=True)
    await made(dataplane, change(VipKey(V4, ONE), BackendEntry(100), BackendEntry(0, kill=True)))
    assert (await dataplane.read())[VipKey(V4, ONE)] == BackendEntry(100)


async def an_entry_goes_alone(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL, change(VipKey(V4, ONE), None, BackendEntry(100)))
    assert set(await dataplane.read({V4})) == {VipKey(V4), VipKey(V4, TWO)}


async def entries_go_with_their_vip(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL, change(VipKey(V4), None, VipSettings()))
    assert set(await dataplane.read()) == {VipKey(V6), VipKey(V6, SIX)}


async def deleting_what_is_gone_is_no_error(dataplane: VipDataplane) -> None:
    await made(dataplane, change(VipKey(V4, ONE), None, BackendEntry(1)), change(VipKey(V4), None, VipSettings()))
    assert await dataplane.read() == {}


async def a_vip_can_be_torn_down_and_rebuilt_in_one_call(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    rebuilt = VipSettings(sticky=True)
    await made(
        dataplane,
        change(VipKey(V4), None, VipSettings()),
        change(VipKey(V4), rebuilt),
        change(VipKey(V4, ONE), BackendEntry(100)),
    )
    assert await dataplane.read({V4}) == {VipKey(V4): rebuilt, VipKey(V4, ONE): BackendEntry(100)}


async def it_says_what_it_is(dataplane: VipDataplane) -> None:
    said = dataplane.describe()
    assert said.name
    assert said.live <= set(VipSettings.__dataclass_fields__)


async def counters_are_of_entries_that_are_there(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    assert set(await dataplane.counters()) <= set(await dataplane.read())


Case = Callable[[VipDataplane], Awaitable[None]]

CASES: tuple[Case, ...] = (
    an_empty_one_holds_nothing,
    what_was_made_is_read_back,
    one_vip_can_be_read_alone,
    making_a_thing_twice_is_making_it_once,
    a_weight_changes_and_nothing_else,
    a_weight_of_zero_stays_an_entry,
    killed_flows_are_remembered_as_level,
    an_entry_goes_alone,
    entries_go_with_their_vip,
    deleting_what_is_gone_is_no_error,
    a_vip_can_be_torn_down_and_rebuilt_in_one_call,
    it_says_what_it_is,
    counters_are_of_entries_that_are_there,
)
