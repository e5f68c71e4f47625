"""State of a host in the grid, from its keys in etcd."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.api.fleet.cells import CellState, HostKeys, cell
from holdfast.model.base.time import Instant, seconds
from holdfast.model.calico.agent_status import AgentStatus
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.fleet.agent_report import AgentReport, GateReport, ObjectProblem

NOW = Instant(1_000_000_000_000)
SINCE = datetime(2026, 11, 18, 3, 8, 13, tzinfo=UTC)


def host(report: AgentReport | None = None, *, alive: bool = True) -> HostKeys:
    return HostKeys(True, (), alive, AgentStatus("2026-11-18T03:06:43Z"), report, NOW)


def report(**fields: object) -> AgentReport:
    return AgentReport(version="1", boot_id="b", **fields)  # type: ignore[arg-type]


def test_a_host_that_reports_and_has_everything_is_at_head() -> None:
    assert cell(host(report(synced_revision=10)), [(10, NOW - seconds(60))]).state is CellState.AT_HEAD


def test_a_host_without_a_lease_is_silent_since_its_last_report() -> None:
    found = cell(host(report(), alive=False), [])
    assert (found.state, found.since) == (CellState.SILENT, "2026-11-18T03:06:43Z")


def test_a_closed_gate_is_shown_with_its_reason_and_what_opens_it() -> None:
    gates = (GateReport("sync", "no complete list yet", SINCE, "holdfast source forget x", "region-a"),)
    found = cell(host(report(gates=gates)), [])
    assert found.state is CellState.GATE_CLOSED
    assert (found.why, found.opens) == ("sync (region-a): no complete list yet", "holdfast source forget x")


def test_a_pause_is_no_closed_gate() -> None:
    gates = (GateReport("intent", "paused by alice", SINCE, "holdfast resume host h"),)
    assert cell(host(report(gates=gates)), []).state is CellState.PAUSED


def test_an_object_that_the_kernel_refuses_is_named() -> None:
    troubles = (ObjectProblem("route 10.0.0.0/26", "failed", "no such device", SINCE),)
    found = cell(host(report(troubles=troubles, counts={"failed": 3})), [])
    assert (found.state, found.why) == (CellState.FAILING, "route 10.0.0.0/26: no such device, and 2 more")


def test_a_host_is_behind_only_if_it_lacks_a_change_from_well_before_its_report() -> None:
    one = host(report(synced_revision=10))
    assert cell(one, [(12, NOW - seconds(9))]).state is CellState.AT_HEAD
    assert cell(one, [(12, NOW - seconds(11))]).why == "2 revisions behind, catching up"


def test_a_drained_host_says_who_drained_it_and_what_ends_that() -> None:
    drain = Intent(
        what=IntentKind.DRAIN, scope=Scope(ScopeKind.HOST, "r1"), who="token alice", why="new disk", since=SINCE
    )
    for reported in (report(), None):
        one = host(reported)
        one.drain = drain
        found = cell(one, [])
        assert (found.state, found.opens) == (CellState.DRAINED, "holdfast undrain host r1")
        assert "drained by token alice: “new disk”" in found.why
    paused = host(report(gates=(GateReport("syncer/brake", "too many deletes", SINCE, "look"),)))
    paused.drain = drain
    assert cell(paused, []).state is CellState.GATE_CLOSED
