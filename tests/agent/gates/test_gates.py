"""The agent's own gates, one refusal at a time."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from holdfast.agent.claims import Claim, ClaimKey, LocalRoute, Mode, NexthopEntry, RemoteRoute, Shape, nexthop, route
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.gates.dependents import DependentsGate, DependentsReason
from holdfast.agent.gates.precedence import PrecedenceGate, PrecedenceReason
from holdfast.agent.gates.readiness import HandlerReadyGate, InterfaceGate, ReadinessReason
from holdfast.agent.gates.store_path import StorePathGate, StorePathReason, on_path
from holdfast.agent.pending_deletes import HandlerStatus, PendingDeletes
from holdfast.agent.present import Present
from holdfast.model.base.time import Instant, seconds
from holdfast.reconcile import Change, Closed, Gate, Op, Owned, Synced, SyncGate
from holdfast.runtime.cooperative import at_once
from holdfast.testing.fakes.kernel import FakeHandler, FakeKernel
from tests.agent.dataplane.conformance import M1, T1, T2, U1, tunnel

NOW = Instant(10**12)
P1 = route("10.65.0.1/32")


def owned(shape: Shape, source: str = "region") -> Owned[Claim]:
    return Owned(Claim(shape), source, 1)


def delete(key: ClaimKey, shape: Shape) -> ClaimChange:
    return Change(Op.DELETE, key, owned(shape), None)


def replace(key: ClaimKey, old: Owned[Claim], new: Owned[Claim]) -> ClaimChange:
    return Change(Op.REPLACE, key, old, new)


def judged(gate: Gate[ClaimKey, Claim], change: ClaimChange, now: Instant = NOW) -> Closed | None:
    return gate.judge(change, {change.op: 1}, 10, now)


def present(objects: Mapping[ClaimKey, Shape]) -> Present:
    made = Present()
    for key, shape in objects.items():
        made.put(key, owned(shape))
    return made


FULL = {**dict(tunnel(T1, M1, U1)), P1: RemoteRoute(T1)}


def test_a_nexthop_is_held_as_long_as_a_route_depends_on_it() -> None:
    there = present(FULL)
    gate = DependentsGate(there)
    closed = judged(gate, delete(nexthop(T1), FULL[nexthop(T1)]))
    assert closed is not None
    assert closed.reason is DependentsReason.HAS_DEPENDENTS
    assert closed.sentence == "1 object in the kernel: other objects in the kernel still depend on it"
    there.drop(P1)
    assert there.take_released() == {nexthop(T1)}
    assert judged(gate, delete(nexthop(T1), FULL[nexthop(T1)])) is None


def test_a_route_is_held_until_the_nexthop_that_it_moves_to_is_there() -> None:
    there = present(FULL)
    gate = DependentsGate(there)
    moved = replace(P1, owned(RemoteRoute(T1)), owned(RemoteRoute(T2)))
    closed = judged(gate, moved)
    assert closed is not None
    assert closed.reason is DependentsReason.DEPENDENCY_MISSING
    there.put(nexthop(T2), owned(NexthopEntry(Mode.DIRECT)))
    assert there.take_released() == {P1}
    assert judged(gate, moved) is None


def test_a_route_waits_for_a_nexthop_that_the_kernel_has_lost() -> None:
    there = present(FULL)
    there.put(nexthop(T1), Owned(Claim(FULL[nexthop(T1)], missing=True), "region", 1))
    gate = DependentsGate(there)
    back = Change(Op.CREATE, P1, None, owned(RemoteRoute(T1)))
    closed = judged(gate, back)
    assert closed is not None
    assert closed.sentence == f"nexthop {T1}: the object that it depends on is not in the kernel"
    there.put(nexthop(T1), owned(FULL[nexthop(T1)]))
    assert there.take_released() == {P1}
    assert judged(gate, back) is None


@pytest.mark.parametrize("backs_off", [False, True])
def test_a_route_is_created_in_the_same_plan_as_its_nexthop_unless_that_waits_for_a_retry(*, backs_off: bool) -> None:
    gate = DependentsGate(present({}), lambda _change, _now: backs_off)
    created = [
        Change(Op.CREATE, nexthop(T1), None, owned(NexthopEntry(Mode.DIRECT))),
        Change(Op.CREATE, P1, None, owned(RemoteRoute(T1))),
    ]
    assert [judged(gate, one) is None for one in created] == [True, not backs_off]
    assert judged(gate, created[1], NOW + seconds(1)) is not None, "it was not created after all"


def test_a_route_may_become_local() -> None:
    assert judged(DependentsGate(present(FULL)), replace(P1, owned(RemoteRoute(T1)), owned(LocalRoute("tap1")))) is None


def test_what_is_present_is_counted_once_however_often_it_is_seen() -> None:
    there = present(FULL)
    at_once(there.replace_all({key: owned(shape) for key, shape in FULL.items()}))
    assert there.dependents(nexthop(T1)) == 1
    at_once(there.replace_all({}))
    assert there.dependents(nexthop(T1)) == 0
    assert len(there) == 0


def test_all_that_carries_traffic_to_the_store_is_on_the_path() -> None:
    wide = route("10.64.0.0/15")
    objects: dict[ClaimKey, Shape] = {**FULL, wide: LocalRoute("tap1"), route("10.66.0.0/16"): RemoteRoute(T1)}
    assert on_path(present(objects), ["10.65.0.1"]) == {*FULL, wide}
    assert on_path(present(objects), ["192.0.2.77"]) == frozenset()


def test_the_path_is_let_go_after_the_hold_down() -> None:
    gate = StorePathGate(present(FULL), lambda: ["10.65.0.1"], seconds(30))
    change = delete(P1, RemoteRoute(T1))
    closed = judged(gate, change)
    assert closed is not None
    assert closed.reason is StorePathReason.CARRIES_STORE_TRAFFIC
    assert judged(gate, change, NOW + seconds(29)) is not None
    assert judged(gate, change, NOW + seconds(30)) is None


def test_a_hold_down_shorter_than_the_time_between_two_evaluations_ends() -> None:
    gate = StorePathGate(present(FULL), lambda: ["10.65.0.1"], seconds(1))
    change = delete(P1, RemoteRoute(T1))
    assert judged(gate, change) is not None
    assert judged(gate, change, NOW + seconds(1.1)) is None


def test_the_hold_down_restarts_for_an_object_that_was_wanted_in_between() -> None:
    gate = StorePathGate(present(FULL), lambda: ["10.65.0.1"], seconds(30))
    change = delete(P1, RemoteRoute(T1))
    assert judged(gate, change) is not None
    assert judged(gate, change, NOW + seconds(600)) is not None
    assert judged(gate, change, NOW + seconds(630)) is None


def test_a_lower_source_waits_for_the_owner_and_a_higher_one_does_not() -> None:
    sync = SyncGate({"first": Synced(NOW), "second": Synced(NOW, 5)})
    gate = PrecedenceGate(("first", "second"), sync)
    down = replace(P1, owned(RemoteRoute(T1), "first"), owned(RemoteRoute(T2), "second"))
    up = replace(P1, owned(RemoteRoute(T1), "second"), owned(RemoteRoute(T2), "first"))
    closed = judged(gate, down)
    assert closed is not None
    assert closed.reason is PrecedenceReason.OWNER_UNSYNCED
    assert closed.opens == "a complete list from first"
    late = judged(gate, down, NOW + seconds(61))
    assert late is not None
    assert late.opens == "a complete list from first, or: holdfast source forget first --reason …"
    assert judged(gate, up) is None
    sync.note_source("first", Synced(NOW, 7))
    assert judged(gate, down) is None


def test_everything_waits_for_a_handler_that_is_not_ready() -> None:
    handler = FakeHandler("ids", waits_for="its table")
    gate = HandlerReadyGate([FakeKernel(), handler])
    closed = judged(gate, delete(P1, RemoteRoute(T1)))
    assert closed is not None
    assert closed.sentence == "ids: its table: a handler is not ready to take changes"
    assert judged(gate, delete(P1, RemoteRoute(T1)), NOW + seconds(5)) == closed
    handler.waits_for = None
    assert judged(gate, delete(P1, RemoteRoute(T1))) is None


def test_what_cannot_be_there_yet_waits_and_what_goes_does_not() -> None:
    gate = InterfaceGate(FakeKernel(interfaces=set()))
    made: ClaimChange = Change(Op.CREATE, P1, None, owned(LocalRoute("tap1")))
    closed = judged(gate, made)
    assert closed is not None
    assert closed.reason is ReadinessReason.INTERFACE_NOT_READY
    assert closed.detail == "interface tap1 does not exist"
    assert judged(gate, delete(P1, LocalRoute("tap1"))) is None


def test_a_delete_asks_only_handlers_that_have_not_acknowledged_it_and_keeps_their_errors() -> None:
    deletions = PendingDeletes(["kernel", "ids"])
    deletions.begin([P1])
    deletions.record(P1, "kernel", None)
    deletions.record(P1, "ids", "busy")
    deletions.begin([P1])
    assert not deletions.is_pending(P1, "kernel")
    assert deletions.is_pending(P1, "ids")
    assert deletions.statuses(P1) == (HandlerStatus("kernel", True), HandlerStatus("ids", False, "busy"))
    deletions.cancel(P1)
    assert P1 not in deletions
    assert deletions.statuses(P1) == ()
