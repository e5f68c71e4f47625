"""Status report of a daemon, built from the board alone, and the restart record of each worker on that board."""

from __future__ import annotations

import msgspec

from holdfast.config.sections.pulse import PulseSettings
from holdfast.model.base.time import NEVER, Instant
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.pulse import Pulse, PulseVerdict
from holdfast.runtime.daemon.restart import RestartState


class WorkerRecord(msgspec.Struct, frozen=True):
    """Restart record of a worker, published on the board by its supervisor."""

    phase: str
    verdict: str
    started: Instant = NEVER
    restarts: int = 0
    """Restarts in the last 24 hours."""
    reasons: dict[str, int] = {}
    """Restarts since the supervisor began, by reason."""
    crash_looping: bool = False
    trouble: str = ""
    """Last failure: exited, hung, stalled, …"""
    evidence: str = ""
    trouble_at: Instant = NEVER
    back_at: Instant = NEVER

    @classmethod
    def of(cls, state: RestartState, verdict: PulseVerdict, bounds: PulseSettings, now: Instant) -> WorkerRecord:
        trouble = state.trouble
        return cls(
            phase=state.phase.value,
            verdict=verdict.name.lower(),
            started=state.started,
            restarts=len(state.restarts),
            reasons={verdict.value: count for verdict, count in state.reasons.items()},
            crash_looping=state.crash_looping(bounds, now),
            trouble=trouble.verdict.value if trouble else "",
            evidence=trouble.evidence[:200] if trouble else "",
            trouble_at=trouble.at if trouble else NEVER,
            back_at=(trouble.back or NEVER) if trouble else NEVER,
        )


class WorkerReport(msgspec.Struct, frozen=True):
    """One line of `holdfast status`. Ages are in seconds at the time of the report; None: never, or not applicable."""

    name: str
    pid: int | None
    phase: str
    verdict: str
    state: str
    pulse_s: float | None
    backlog: int | None
    lag_s: float | None
    restarts: int
    crash_looping: bool
    warm: bool = False
    trouble: str = ""
    evidence: str = ""
    trouble_ago_s: float | None = None
    back_after_s: float | None = None
    waiting_s: float | None = None
    """How long a dependency has been unreachable."""
    restart_reasons: dict[str, int] = {}
    """Restarts since the supervisor began, by reason."""


class DaemonReport(msgspec.Struct, frozen=True):
    role: str
    version: str
    supervisor_pid: int | None
    supervisor_pulse_s: float | None
    workers: list[WorkerReport]
    config_refused: str = ""
    """Errors of the configuration that was refused last, one per line; empty once one is taken."""


def report(board: Board, role: str, version: str, now: Instant) -> DaemonReport:
    own = board.cell("supervisor", Pulse).read()
    names = [name for name in board.cells() if f"{name}/record" in board.cells()]
    return DaemonReport(
        role=role,
        version=version,
        supervisor_pid=own.pid if own else None,
        supervisor_pulse_s=_age(own.beat, now) if own else None,
        workers=[_worker(board, name, now) for name in names],
    )


def _worker(board: Board, name: str, now: Instant) -> WorkerReport:
    pulse, found = board.cell(name, Pulse).read(), board.cell(f"{name}/record", WorkerRecord).read()
    record = found or WorkerRecord(phase="due", verdict="starting")
    # The pulse of an ended process says nothing about the worker now.
    live = pulse if pulse and record.phase in ("running", "ending", "killed") and pulse.beat >= record.started else None
    return WorkerReport(
        name=name,
        pid=live.pid if live else None,
        phase=record.phase,
        verdict=record.verdict,
        state=_state(record, live),
        pulse_s=_age(live.beat, now) if live else None,
        backlog=live.backlog if live else None,
        lag_s=_lag(live, now),
        restarts=record.restarts,
        crash_looping=record.crash_looping,
        warm=bool(live and live.warm),
        trouble=record.trouble,
        evidence=record.evidence,
        trouble_ago_s=_age(record.trouble_at, now) if record.trouble_at else None,
        back_after_s=_age(record.trouble_at, record.back_at) if record.back_at else None,
        waiting_s=_age(live.waiting, now) if live and live.waiting else None,
        restart_reasons=record.reasons,
    )


def _state(record: WorkerRecord, pulse: Pulse | None) -> str:
    if record.crash_looping and record.phase != "running":
        return "crash-looping"
    if record.phase == "completed":
        return "completed"
    if record.phase == "running":
        return pulse.state if pulse else "starting"
    return "restarting" if record.phase == "due" and record.trouble else record.phase


def _lag(pulse: Pulse | None, now: Instant) -> float | None:
    if pulse is None or pulse.backlog is None:
        return None
    return _age(pulse.oldest, now) if pulse.oldest else 0.0


def _age(since: Instant, now: Instant) -> float:
    return round(max(0.0, (now - since).total_seconds()), 3)
