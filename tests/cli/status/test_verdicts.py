"""Verdicts on store and inventory on the status page: one problem for one event, to the letter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.agent.report.summary import AgentDetails
from holdfast.cli.status.page import exit_code, render
from holdfast.cli.status.view import StatusView
from holdfast.model.control.identity import LatchedVerdict, StoreRefusal
from holdfast.server.election.views import ElectorView, FleetVerdict
from holdfast.store.identity import ADOPT, ADOPT_INVENTORY
from tests.cli.status.test_page import daemon, worker

NOW = datetime(2026, 3, 1, 3, 7, 9, tzinfo=UTC)
SERVER = ElectorView("ctl-1", "leading", "ctl-1", 7, 1.0, 9.0, 15.0, {}, fleet="kelp")
WENT_BACK = (
    "the store went back to mark 3, but mark 9 had reached it; nothing is deleted until an operator has checked it"
)
NO_MARK = (
    "the store has mark 9, which this inventory never made (its newest is 3): the inventory was restored from a backup"
)
HERE_ALONE = f"{ADOPT}; for this host alone: holdfast agent adopt --reason WHY"


def server(name: str = "ctl-1", **changed: Any) -> ElectorView:
    phase = "leading" if name == "ctl-1" else "following"
    return msgspec.structs.replace(SERVER, name=name, phase=phase, **changed)


def restored(name: str, revision: int, **changed: Any) -> ElectorView:
    """A server that remembers another revision than the others."""
    sentence = f"the store went back to revision 7, but revision {revision} was seen before"
    return server(name, refuses_store=sentence, opens=ADOPT, verdict="store_restored", **changed)


def agent(host: str, verdict: str = "store_restored", fleet: str = "kelp") -> AgentDetails:
    refusal = StoreRefusal(verdict, f"{host} remembers a newer store", HERE_ALONE, fleet)
    return AgentDetails(host, "linux", store_refusals=[refusal])


def held(label: str, gate: str = "identity", op: str = "delete") -> dict[str, Any]:
    reason = {"gate": gate, "reason": f"held: {label}", "label": label, "opens": ADOPT}
    return {"key": "e1", "kind": "endpoints", "op": op, "since_s": 5.0, "attempts": 0, "error": "", **reason}


def problems_of(view: StatusView) -> list[str]:
    """The page from its problems on, up to the store and the leader."""
    lines = render(view, NOW).splitlines()[2:]
    return lines[: lines.index("")]


def fleet_of(*servers: ElectorView, **more: Any) -> StatusView:
    states = [worker("syncer", state="held: identity"), worker("agent-status", state="held: identity")]
    reports = [daemon(worker("elector"), *states, role="server"), daemon(worker("peers", state="held: identity"))]
    return StatusView(reports, servers=servers, **more)


def test_a_restored_store_is_one_problem_however_many_daemons_notice_it() -> None:
    recorded = LatchedVerdict("store_restored", WENT_BACK)
    view = fleet_of(
        restored("ctl-1", 400, recorded=recorded),
        restored("ctl-2", 392, recorded=recorded),
        agents=[agent("r1"), agent("r2")],
        balancers={"lb1": StoreRefusal("store_restored", "lb1 remembers a newer store", ADOPT)},
        verdict=FleetVerdict("store_restored", WENT_BACK, ADOPT, {"delete": 3}, ["endpoints", "hosts"]),
        held={
            "server/syncer": [held("store_restored")],
            "server/agent-status": [held("store_restored")],
            "agent/peers": [held("store_restored")],
        },
    )
    assert problems_of(view) == [
        "NEEDS YOU  1        handled by itself  0",
        (
            f" 1 store            restored from a backup: {WENT_BACK}; the syncer holds 3 deletes (endpoints, hosts); "
            "reported by 2 servers, 2 agents, 1 balancer"
        ),
        "                    To inspect: holdfast diff inventory",
        f"                    To release: {ADOPT}",
    ]
    assert exit_code(view) == 1


def test_a_verdict_needs_action_even_when_nothing_is_held() -> None:
    recorded = LatchedVerdict("store_restored", WENT_BACK)
    on_a_follower = StatusView([daemon(role="server")], servers=[server("ctl-2", recorded=recorded)])
    on_the_leader = StatusView([daemon(role="server")], verdict=FleetVerdict("store_restored", WENT_BACK, ADOPT))
    for view in (on_a_follower, on_the_leader):
        assert exit_code(view) == 1
        assert problems_of(view)[1] == f" 1 store            restored from a backup: {WENT_BACK}"


def test_without_an_inventory_the_verdict_of_the_leaders_elector_is_the_problem() -> None:
    view = StatusView([daemon(role="server")], servers=[restored("ctl-1", 400), restored("ctl-2", 392)])
    assert problems_of(view) == [
        "NEEDS YOU  1        handled by itself  0",
        (
            " 1 store            restored from a backup: the store went back to revision 7, but revision 400 was seen "
            "before; reported by 2 servers"
        ),
        "                    To inspect: holdfast doctor",
        f"                    To release: {ADOPT}",
    ]


def test_a_restored_inventory_names_both_choices_and_what_is_held() -> None:
    recorded = LatchedVerdict("inventory_restored", NO_MARK, 12)
    both = [
        server(one, recorded=recorded, refuses_store=NO_MARK, verdict="inventory_restored") for one in ("ctl-1", "b")
    ]
    view = fleet_of(
        *both,
        verdict=FleetVerdict(
            "inventory_restored", NO_MARK, ADOPT_INVENTORY, {"delete": 3, "create": 12}, ["endpoints"]
        ),
        held={"server/syncer": [held("inventory_restored", op="create")]},
    )
    assert problems_of(view) == [
        "NEEDS YOU  1        handled by itself  0",
        f" 1 inventory        {NO_MARK}; the syncer holds 12 creates, 3 deletes (endpoints); reported by 2 servers",
        "                    To inspect: holdfast inventory adopt",
        "                    To release: holdfast inventory adopt --keep store|inventory --reason WHY",
    ]


def test_if_both_sides_were_restored_the_order_is_printed() -> None:
    recorded = LatchedVerdict("inventory_restored", NO_MARK, 12)
    view = fleet_of(
        restored("ctl-1", 400, recorded=recorded),
        agents=[agent("r1")],
        verdict=FleetVerdict("inventory_restored", NO_MARK, ADOPT_INVENTORY),
        held={"agent/peers": [held("store_restored")]},
    )
    assert problems_of(view) == [
        "NEEDS YOU  1        handled by itself  0",
        (
            f" 1 inventory        {NO_MARK}; the store was restored, too: the inventory comes first; "
            "reported by 1 server, 1 agent"
        ),
        "                    To inspect: holdfast inventory adopt",
        f"                    To release: first {ADOPT_INVENTORY}; then {ADOPT}",
    ]


def test_a_store_without_an_identity_is_the_problem_of_the_syncer_and_of_every_agent() -> None:
    sentence = "the store has no identity, but it is not empty: another system may use it"
    view = fleet_of(
        server(),
        agents=[agent("r1", "store_unnamed", fleet="")],
        verdict=FleetVerdict("store_unnamed", sentence, f"holdfast import, then: {ADOPT}", {"delete": 30}, ["hosts"]),
        held={"server/syncer": [held("store_unnamed")], "agent/peers": [held("store_unnamed")]},
    )
    assert problems_of(view) == [
        "NEEDS YOU  1        handled by itself  0",
        f" 1 store            {sentence}; the syncer holds 30 deletes (hosts); reported by 1 agent",
        "                    To inspect: holdfast diff inventory",
        f"                    To release: holdfast import, then: {ADOPT}",
    ]


def test_a_verdict_that_the_leader_does_not_share_is_a_problem_of_its_own() -> None:
    view = fleet_of(server(), agents=[agent("r1"), agent("r2")], held={"agent/peers": [held("store_restored")]})
    assert problems_of(view) == [
        "NEEDS YOU  1        handled by itself  0",
        " 1 r1               restored from a backup: r1 remembers a newer store; reported by 2 agents",
        "                    To inspect: holdfast explain host r1",
        f"                    To release: {HERE_ALONE}",
    ]
    follower = fleet_of(server(), restored("ctl-2", 400))
    assert problems_of(follower)[1].startswith(" 1 ctl-2            restored from a backup: the store went back")
    assert exit_code(view) == exit_code(follower) == 1


def test_the_store_of_another_source_is_another_event() -> None:
    recorded = LatchedVerdict("store_restored", WENT_BACK)
    view = fleet_of(server(recorded=recorded), agents=[agent("r1", fleet="other")])
    assert [line[:20] for line in problems_of(view) if line[1].isdigit()] == [
        " 1 store            ",
        " 2 r1               ",
    ]


def test_servers_that_know_different_fleets_stay_apart() -> None:
    ours, theirs = (f"this store belongs to fleet reef, but we belong to fleet {one}" for one in ("kelp", "moss"))
    foreign = [
        server(name, refuses_store=sentence, verdict="foreign_store", leader="", fleet="reef")
        for name, sentence in (("a", ours), ("b", ours), ("c", theirs))
    ]
    shown = [line for line in problems_of(StatusView([daemon(role="server")], servers=foreign)) if "belongs" in line]
    assert shown == [f" 2 store            {ours}; reported by 2 servers", f" 3 c                {theirs}"]


def test_a_store_that_is_being_filled_needs_no_action() -> None:
    view = fleet_of(
        server(),
        agents=[agent("r1", "store_filling")],
        verdict=FleetVerdict("filling", "the store is being filled", "the end of the first resync"),
        held={"agent/peers": [held("store_filling")]},
    )
    assert problems_of(view)[:2] == [
        "NEEDS YOU  0        handled by itself  1",
        " · store            the store is being filled; reported by 1 agent",
    ]
    assert exit_code(view) == 3


def test_what_other_gates_hold_is_still_shown() -> None:
    recorded = LatchedVerdict("store_restored", WENT_BACK)
    view = fleet_of(server(recorded=recorded), held={"server/syncer": [held("unwitnessed", gate="witness")]})
    assert [line[:20] for line in problems_of(view) if line[1].isdigit()] == [
        " 1 store            ",
        " 2 syncer           ",
    ]
