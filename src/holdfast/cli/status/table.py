"""Table of daemons on the status page: one line for a healthy daemon, one line per worker for any other. Pure.

An agent with one worker that is not well still takes one line: hundreds of them may wait for the same etcd.

Nothing that a process wrote down is shown as its present state once the process has stopped showing a pulse: a frozen
leader's board says "leading" for as long as it is frozen.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from holdfast.cli.common.format import Paint, count, plain, short
from holdfast.cli.common.terms import TermOnBoard
from holdfast.cli.status.view import BLOCKED_S, StatusView
from holdfast.runtime.daemon.report import WorkerReport
from holdfast.server.election.views import ElectorView

_NAME, _STATE = 18, 22
"""Columns of a name and of a state. The table is 80 columns wide; a problem shows all of a longer state."""
_FEW = 2
"""Workers of an agent or a balancer. Where only one of them is unwell, it takes the daemon's one line."""
_LEADING = "leading"
_SETTLING = ("starting", "waiting", "ending", "killed", "due", "restarting", "no pulse")
_WRONG = ("refused", "failing", "crash-looping", "gone", "not renewed", "deposed")
_HELD = ("held", "paused")


def daemon_lines(view: StatusView, paint: Paint = plain) -> Iterator[str]:
    """Yield the table; daemons in the order of their names, as the view has them."""
    yield ""
    yield f"{'DAEMON':<{_NAME}}{'PULSE':>7}  {'STATE':<{_STATE}}{'BACKLOG':>9}{'LAG':>8}  RESTARTS 24h"
    for one in view.reports:
        rows = [present(worker, one.role, view) for worker in one.workers]
        unwell = [row for row in rows if not is_well(row)]
        if rows and not unwell:
            yield from _line(_summary(one.role, rows), paint)
        elif len(unwell) == 1 and len(rows) <= _FEW:
            yield from _line(msgspec.structs.replace(unwell[0], name=f"{one.role}/{unwell[0].name}"), paint)
        else:
            yield one.role if rows else f"{one.role:<{_NAME}}{'–':>7}  no workers"
            for row in rows:
                yield from _line(row, paint, indent="  ")


def is_well(worker: WorkerReport) -> bool:
    """True if this row hides nothing that an operator would look for."""
    return worker.verdict != "overdue" and not worker.crash_looping and _colour(worker.state) in ("", "green")


def present(worker: WorkerReport, daemon: str, view: StatusView) -> WorkerReport:
    """Return the worker with the state that it is in now, which may not be the one that it wrote down last."""
    state = worker.state
    if worker.pid is not None and (worker.pulse_s or 0.0) > BLOCKED_S:
        state = f"no pulse, was {state}"
    elif worker.name == "elector" and state == _LEADING:
        state = _leadership(daemon, view.terms, view.servers)
    return worker if state == worker.state else msgspec.structs.replace(worker, state=state)


def _leadership(daemon: str, terms: Mapping[str, TermOnBoard], servers: Sequence[ElectorView]) -> str:
    """Return "leading" only for the newest term, and only while it is renewed."""
    shown = terms.get(daemon)
    if shown is not None and shown.stale_s >= 0:
        return f"not renewed {short(shown.stale_s)}"
    own = next((one for one in servers if one.name == daemon and one.phase == _LEADING), None)
    if own is None:
        return _LEADING
    newest = max(one.term for one in servers if one.phase == _LEADING)
    if own.term < newest:
        return f"deposed by {newest}"
    unrenewed_s = own.confirmed_s or 0.0
    return f"not renewed {short(unrenewed_s)}" if unrenewed_s > own.ttl_s else _LEADING


def _summary(daemon: str, workers: Sequence[WorkerReport]) -> WorkerReport:
    """Return one row for a healthy daemon: the oldest pulse, the sum of the backlogs, the longest lag."""
    pulses = [one.pulse_s for one in workers if one.pulse_s is not None]
    lags = [one.lag_s for one in workers if one.lag_s is not None]
    backlogs = [one.backlog for one in workers if one.backlog is not None]
    elector = next((one.state for one in workers if one.name == "elector"), "ok")
    last = min((one for one in workers if one.trouble_ago_s is not None), key=_ago, default=None)
    return msgspec.structs.replace(
        last or workers[0],
        name=daemon,
        state=elector,
        pulse_s=max(pulses, default=None),
        backlog=sum(backlogs) if backlogs else None,
        lag_s=max(lags, default=None),
        restarts=sum(one.restarts for one in workers),
        trouble=f"{last.name} {last.trouble}" if last and last.trouble else "",
    )


def _ago(worker: WorkerReport) -> float:
    return worker.trouble_ago_s or 0.0


def _line(worker: WorkerReport, paint: Paint, indent: str = "") -> Iterator[str]:
    pulse = "–" if worker.pulse_s is None else short(worker.pulse_s)
    lag = "–" if worker.lag_s is None else short(worker.lag_s)
    state = paint(f"{_shortened(worker.state):<{_STATE}}", _colour(worker.state))
    name = indent + worker.name
    yield f"{name:<{_NAME}}{pulse:>7}  {state}{count(worker.backlog):>9}{lag:>8}  {worker.restarts}"
    if worker.trouble and worker.trouble_ago_s is not None:
        back = f", back in {short(worker.back_after_s)}" if worker.back_after_s is not None else ""
        yield f"{' ' * (_NAME + 9)}{worker.trouble} {short(worker.trouble_ago_s)} ago{back}"


def _shortened(state: str) -> str:
    return textwrap.shorten(state, _STATE, placeholder=" …")


def _colour(state: str) -> str:
    """Return the colour of a state; empty for one that is neither good nor bad."""
    if state.startswith(_WRONG):
        return "red"
    if state.startswith((*_SETTLING, *_HELD)):
        return "yellow"
    return "green" if state == "ok" or state.startswith(_LEADING) else ""
