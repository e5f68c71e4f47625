"""Checks of the daemons of this machine: silent ones, crash loops, and the clocks that the leader has compared."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.common.control_socket import roles
from holdfast.cli.common.format import counted
from holdfast.cli.doctor import Finding, Severity
from holdfast.cli.status import observed
from holdfast.cli.status.view import StatusView, read_status

_NAMED = 3


def examine(runtime: Path) -> Iterator[Finding]:
    """Ask the daemons here; yields nothing where none runs."""
    if not roles(runtime):
        return
    try:
        view = asyncio.run(read_status(runtime))
    except click.ClickException as error:
        yield Finding(Severity.WRONG, "daemons", error.message)
        return
    yield from findings(view)


def findings(view: StatusView) -> Iterator[Finding]:
    """Judge what the daemons have answered. Pure."""
    yield from _daemons(view)
    yield from _clocks(view)


def _daemons(view: StatusView) -> Iterator[Finding]:
    for name in view.silent:
        state = "has exited" if name in view.gone else "does not answer"
        yield Finding(Severity.WRONG, "daemons", f"the supervisor of {name} {state}: see holdfast status")
    looping = [(one.role, worker) for one in view.reports for worker in one.workers if worker.crash_looping]
    for daemon, worker in looping:
        last = f"{worker.trouble} ({worker.evidence})"
        sentence = f"{daemon}/{worker.name} is crash-looping, {worker.restarts} restarts in 24 h; last: {last}"
        yield Finding(Severity.WRONG, "daemons", sentence)
    if not looping and not view.silent:
        yield Finding(Severity.GOOD, "daemons", f"{counted(len(view.reports), 'daemon')} here, no worker crash-loops")


def _clocks(view: StatusView) -> Iterator[Finding]:
    """Judge the clocks, as the leader's status worker compares them; nothing where no leader runs."""
    seen = view.seen.get(observed.AGENTS)
    if seen is None or not observed.is_compared(seen):
        return
    if seen.get("own_clock_s"):
        by = f"{seen['own_clock_s']:+.0f} s"
        yield Finding(Severity.WRONG, "clocks", f"this server is {by} ahead of most hosts: check its NTP")
    off = seen["clock_off"]
    names = ", ".join(f"{one['host']} {one['by_s']:+.0f} s" for one in off[:_NAMED])
    if off:
        more = f", and {len(off) - _NAMED:,} more" if len(off) > _NAMED else ""
        yield Finding(Severity.WRONG, "clocks", f"off by more than the others: {names}{more}: check their NTP")
    elif not seen.get("own_clock_s"):
        yield Finding(Severity.GOOD, "clocks", f"those of {counted(seen['total'], 'host')} agree")
