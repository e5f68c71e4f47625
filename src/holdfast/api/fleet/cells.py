"""State of one host as a cell of the dashboard's grid, from its keys in etcd. Pure.

A host without a live agent is silent, whatever its last report said. A closed gate comes before a failure, because its
reason names what opens it; what operators asked for comes after both. A host is behind if its report does not cover a
change of the hosts that was known `_ALLOWED` before that report: reports come every 30 s, so a comparison with the head
would show most hosts as behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum

import msgspec

from holdfast.model.base.time import Duration, Instant, rfc3339
from holdfast.model.calico.agent_status import AgentStatus
from holdfast.model.control.intent import Intent
from holdfast.model.fleet.agent_report import AgentReport, GateReport

_ALLOWED = Duration(seconds=10)
_PAUSE = "intent"


class CellState(Enum):
    """States of a host, each with the letter that stands for it in the compact document."""

    AT_HEAD = "h"
    BEHIND = "b"
    GATE_CLOSED = "g"
    FAILING = "f"
    PAUSED = "p"
    SILENT = "s"
    DRAINED = "d"


class HostCell(msgspec.Struct, frozen=True, gc=False):
    """One cell. `since` is a timestamp of the reporting host, empty if it is not known."""

    state: CellState
    why: str = ""
    since: str = ""
    opens: str = ""


class HostKeys(msgspec.Struct, gc=False):
    """Values of one host in etcd."""

    known: bool = False
    """The inventory has it: the syncer has written it."""
    addresses: tuple[str, ...] = ()
    alive: bool = False
    last: AgentStatus | None = None
    report: AgentReport | None = None
    reported_at: Instant | None = None
    """Instant at which this process received the report."""
    drain: Intent | None = None
    """The drain in force."""


_AT_HEAD = HostCell(CellState.AT_HEAD)


def cell(host: HostKeys, changes: Sequence[tuple[int, Instant]]) -> HostCell:
    """Judge one host. `changes` has the revisions of the last new hosts, and when they were seen."""
    if not host.alive:
        since = host.last.time or "" if host.last else ""
        never = "no agent has reported yet" if not since else "lease expired; routes to its endpoints stay"
        return HostCell(CellState.SILENT, never, since)
    report = host.report
    if report is None:  # Felix, or an agent that cannot write its report yet
        return _AT_HEAD if host.drain is None else _drained(host.drain)
    closed = [gate for gate in report.gates if gate.gate != _PAUSE]
    if closed:
        return _of_gate(CellState.GATE_CLOSED, closed[0], len(closed))
    if failed := [one for one in report.troubles if one.state == "failed"]:
        more = report.counts.get("failed", len(failed)) - 1
        also = f", and {more:,} more" if more > 0 else ""
        return HostCell(CellState.FAILING, f"{failed[0].key}: {failed[0].reason}{also}", _text(failed[0].since))
    if report.gates:
        return _of_gate(CellState.PAUSED, report.gates[0], 1)
    if host.drain is not None:
        return _drained(host.drain)
    behind = _behind(report, host.reported_at, changes)
    return HostCell(CellState.BEHIND, f"{behind:,} revisions behind, catching up") if behind else _AT_HEAD


def _drained(drain: Intent) -> HostCell:
    why = f"drained by {drain.sentence}: balancers pause its backends, and its routes stay"
    return HostCell(CellState.DRAINED, why, _text(drain.since), f"holdfast undrain host {drain.scope.name}")


def _of_gate(state: CellState, gate: GateReport, gates: int) -> HostCell:
    scope = f" ({gate.scope})" if gate.scope else ""
    more = f", and {gates - 1} more" if gates > 1 else ""
    return HostCell(state, f"{gate.gate}{scope}: {gate.reason}{more}", _text(gate.since), gate.opens)


def _behind(report: AgentReport, at: Instant | None, changes: Sequence[tuple[int, Instant]]) -> int:
    if report.synced_revision is None or at is None:
        return 0
    due = max((revision for revision, seen in changes if at - seen >= _ALLOWED), default=0)
    return max(0, due - report.synced_revision)


def _text(moment: datetime) -> str:
    return rfc3339(moment)
