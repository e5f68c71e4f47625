"""What every dataplane must do. One suite for the one in memory, dry-run, and the real ones.

A new dataplane is proven by a test module that hands `CASES` a factory: each case gets a fresh, empty dataplane. One
that outlives its process also passes `RESTARTS`, with a second factory that opens it as a new process would. What is
made is made, and found again, in the form that the dataplane can hold.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.reconciler import same
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Value, Vip, VipKey, VipSettings, backend
from holdfast.reconcile import Change, Op, Owned, diff

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
    fitting = [_fitting(dataplane, one) for one in changes]
    assert list(await dataplane.apply(fitting)) == [None] * len(changes)


def seen(dataplane: VipDataplane, objects: Mapping[VipKey, Value]) -> dict[VipKey, Value]:
    """The objects as the dataplane can hold them."""
    return dict(_fit(dataplane, key, value) for key, value in objects.items())


def _fit(dataplane: VipDataplane, key: VipKey, value: Value) -> tuple[VipKey, Value]:
    if isinstance(value, VipSettings):
        return dataplane.canonical(key.vip, [(key, value)])[0]
    return dataplane.canonical(key.vip, [(VipKey(key.vip), VipSettings()), (key, value)])[1]


def _fitting(dataplane: VipDataplane, one: Change[VipKey, Value]) -> Change[VipKey, Value]:
    sides = [None if side is None else _fit(dataplane, one.key, side.value) for side in (one.old, one.new)]
    key = next(side[0] for side in sides if side is not None) if any(sides) else one.key
    if not any(sides) and key.backend != NO_BACKEND:
        key, _ = _fit(dataplane, key, BackendEntry(0))
    return Change(one.op, key, *(None if side is None else _owned(side[1]) for side in sides))


FULL = (
    change(VipKey(V4), VipSettings()),
    change(VipKey(V4, ONE), BackendEntry(100)),
    change(VipKey(V4, TWO), BackendEntry(50)),
    change(VipKey(V6), VipSettings(sticky=True)),
    change(VipKey(V6, SIX), BackendEntry(1)),
)


WANTED: Mapping[VipKey, Value] = {one.key: one.new.value for one in FULL if one.new is not None}


def entries(dataplane: VipDataplane, *keys: VipKey) -> set[VipKey]:
    """Keys in the dataplane."""
    return set(seen(dataplane, {key: WANTED[key] for key in keys}))


async def an_empty_one_holds_nothing(dataplane: VipDataplane) -> None:
    assert await dataplane.read() == {}


async def what_was_made_is_read_back(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    assert await dataplane.read() == seen(dataplane, WANTED)


async def one_vip_can_be_read_alone(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    assert set(await dataplane.read({V6})) == entries(dataplane, VipKey(V6), VipKey(V6, SIX))
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
    assert await dataplane.read() == {**before, **seen(dataplane, {VipKey(V4, ONE): BackendEntry(30)})}


async def a_weight_of_zero_stays_an_entry(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL, change(VipKey(V4, ONE), BackendEntry(0), BackendEntry(100)))
    assert dict(await dataplane.read()).items() >= seen(dataplane, {VipKey(V4, ONE): BackendEntry(0)}).items()


async def killed_flows_are_remembered_as_level(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL, change(VipKey(V4, ONE), BackendEntry(0, kill=True), BackendEntry(100)))
    assert (
        dict(await dataplane.read()).items() >= seen(dataplane, {VipKey(V4, ONE): BackendEntry(0, kill=True)}).items()
    )
    await made(dataplane, change(VipKey(V4, ONE), BackendEntry(100), BackendEntry(0, kill=True)))
    assert dict(await dataplane.read()).items() >= seen(dataplane, {VipKey(V4, ONE): BackendEntry(100)}).items()


async def an_entry_goes_alone(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL, change(VipKey(V4, ONE), None, BackendEntry(100)))
    assert set(await dataplane.read({V4})) == entries(dataplane, VipKey(V4), VipKey(V4, TWO))


async def entries_go_with_their_vip(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL, change(VipKey(V4), None, VipSettings()))
    assert set(await dataplane.read()) == entries(dataplane, VipKey(V6), VipKey(V6, SIX))


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
    assert await dataplane.read({V4}) == seen(dataplane, {VipKey(V4): rebuilt, VipKey(V4, ONE): BackendEntry(100)})


async def it_says_what_it_is(dataplane: VipDataplane) -> None:
    said = dataplane.describe()
    assert said.name
    assert said.live <= set(VipSettings.__dataclass_fields__)


async def counters_are_of_entries_that_are_there(dataplane: VipDataplane) -> None:
    await made(dataplane, *FULL)
    assert set(await dataplane.counters()) <= set(await dataplane.read())


async def its_form_of_what_is_wanted_is_stable_and_complete(dataplane: VipDataplane) -> None:
    wanted = [(key, value) for key, value in WANTED.items() if key.vip == V4]
    once = dataplane.canonical(V4, wanted)
    assert len(once) == len(wanted)
    assert list(dataplane.canonical(V4, wanted)) == list(once)
    assert [key for key, _ in dataplane.canonical(V4, once)] == [key for key, _ in once]
    alone = [dataplane.canonical(V4, [wanted[0], one])[1][0] for one in wanted[1:]]
    assert [key for key, _ in once[1:]] == alone, "a key depends on its object alone"


async def after_a_write_nothing_differs(dataplane: VipDataplane) -> None:
    for vip in (V4, V6):
        wanted = dataplane.canonical(vip, [(key, value) for key, value in WANTED.items() if key.vip == vip])
        assert list(await dataplane.apply([change(key, value) for key, value in wanted])) == [None] * len(wanted)
        held = await dataplane.read({vip})
        assert list(diff(owned(wanted), owned(held.items()), same)) == []


def owned(objects: Iterable[tuple[VipKey, Value]]) -> list[tuple[VipKey, Owned[Value]]]:
    return [(key, Owned(value, "file", 1)) for key, value in sorted(objects, key=lambda pair: pair[0])]


Reopen = Callable[[], VipDataplane]


async def a_new_process_finds_what_was_made(dataplane: VipDataplane, reopened: Reopen) -> None:
    await made(dataplane, *FULL, change(VipKey(V4, ONE), BackendEntry(0, kill=True), BackendEntry(100)))
    wanted = seen(dataplane, {**WANTED, VipKey(V4, ONE): BackendEntry(0, kill=True)})
    assert await reopened().read() == wanted


async def a_new_process_finds_nothing_of_what_was_deleted(dataplane: VipDataplane, reopened: Reopen) -> None:
    await made(dataplane, *FULL, change(VipKey(V6), None, VipSettings(sticky=True)))
    await made(reopened(), change(VipKey(V6), VipSettings()))
    assert await reopened().read({V6}) == seen(dataplane, {VipKey(V6): VipSettings()})


Case = Callable[[VipDataplane], Awaitable[None]]
RestartCase = Callable[[VipDataplane, Reopen], Awaitable[None]]
RESTARTS: tuple[RestartCase, ...] = (a_new_process_finds_what_was_made, a_new_process_finds_nothing_of_what_was_deleted)

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
    its_form_of_what_is_wanted_is_stable_and_complete,
    after_a_write_nothing_differs,
)
