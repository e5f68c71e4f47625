"""`holdfast top`: CPU and memory of every process of the daemons here, the busiest first."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import runtime_flag
from holdfast.cli.common.format import DOCUMENTS, count, output_flag, print_document, short, watchable
from holdfast.cli.common.table import table
from holdfast.cli.status.view import StatusView, read_status

_SUPERVISOR = "supervisor"
_COLUMNS = ("WORKER", "PID", "CPU", "MEMORY", "THREADS", "BACKLOG", "LAG")


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU that a process has used until now, memory and threads that it has."""

    cpu_s: float
    memory: int
    threads: int


@click.command()
@click.option(
    "--sample",
    type=click.FloatRange(0.1, 60),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time over which CPU is measured.",
)
@output_flag
@runtime_flag
@watchable
def top(sample: float, output: str, runtime: Path) -> None:
    """Show the CPU and memory that every process of the daemons here uses, the busiest first.

    CPU is in percent of one core. A supervisor is a process of its own; workers of the leader cost more than those of a
    follower.
    """
    view = asyncio.run(read_status(runtime))
    pids = processes(view)
    before, began = {pid: _usage(pid) for pid in pids.values()}, time.monotonic()
    time.sleep(sample)
    passed = time.monotonic() - began
    rows = measured(view, before, {pid: _usage(pid) for pid in pids.values()}, passed)
    if output in DOCUMENTS:
        print_document(rows, output)
        return
    for line in table([_COLUMNS, *map(_cells, rows)]):
        click.echo(line)
    cpu = sum(one["cpu_percent"] for one in rows)
    click.echo(f"in all {cpu:.0f} % of one core, {_mib(sum(one['memory_bytes'] for one in rows))}", err=True)


def processes(view: StatusView) -> Mapping[str, int]:
    """Return the process of each worker and supervisor, as DAEMON/WORKER. Pure."""
    found: dict[str, int] = {}
    for one in view.reports:
        if one.supervisor_pid is not None:
            found[f"{one.role}/{_SUPERVISOR}"] = one.supervisor_pid
        found |= {f"{one.role}/{worker.name}": worker.pid for worker in one.workers if worker.pid is not None}
    return found


def measured(
    view: StatusView, before: Mapping[int, Usage | None], after: Mapping[int, Usage | None], passed: float
) -> list[dict[str, Any]]:
    """Return one document per process that lived through the sample, the busiest first. Pure."""
    workers = {f"{one.role}/{worker.name}": worker for one in view.reports for worker in one.workers}
    found: list[dict[str, Any]] = []
    for name, pid in processes(view).items():
        first, last = before.get(pid), after.get(pid)
        if first is None or last is None:
            continue
        worker = workers.get(name)
        found.append(
            {
                "worker": name,
                "pid": pid,
                "cpu_percent": round(max(0.0, last.cpu_s - first.cpu_s) / passed * 100, 1),
                "memory_bytes": last.memory,
                "threads": last.threads,
                "backlog": worker.backlog if worker else None,
                "lag_s": worker.lag_s if worker else None,
            }
        )
    return sorted(found, key=lambda one: (-one["cpu_percent"], -one["memory_bytes"], one["worker"]))


def _cells(one: Mapping[str, Any]) -> list[str]:
    return [
        one["worker"],
        str(one["pid"]),
        f"{one['cpu_percent']:.1f} %",
        _mib(one["memory_bytes"]),
        str(one["threads"]),
        count(one["backlog"]),
        "–" if one["lag_s"] is None else short(one["lag_s"]),
    ]


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _usage(pid: int) -> Usage | None:
    """Read the use of a process; None if it has exited, or this user may not look."""
    try:
        return usage_of(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None


def usage_of(stat: str) -> Usage:
    """Parse /proc/PID/stat (proc(5)): the name of the process may contain spaces and brackets. Pure."""
    fields = stat.rpartition(")")[2].split()
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    user, system, threads, resident = (int(fields[number]) for number in (11, 12, 17, 21))
    return Usage((user + system) / ticks, resident * page, threads)
