"""Completion of names in the shell: workers and servers of this machine, and objects of inventory and balancer.

A shell waits for the answer, and must never get an error instead of it: whatever cannot be asked completes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click

from holdfast.cli.common.control_socket import runtime_folder, send_command, workers

_MOST = 200
_WITHIN_S = 5.0
_SERVED = ("backend", "frontend")


def complete_name(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the NAME of the KIND that stands before it."""
    return _beginning(_names(str(context.params.get("kind") or ""), context), incomplete)


def complete_worker(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(_names("worker", context), incomplete)


def complete_host(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _beginning(_names("host", context), incomplete)


def _beginning(names: list[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)][:_MOST]


def _names(kind: str, context: click.Context) -> list[str]:
    kind = kind.removesuffix("s")
    runtime = runtime_folder(context.params.get("runtime"))
    try:
        if kind == "worker":
            return sorted(workers(runtime))
        if kind in _SERVED and (served := _served(kind, runtime)):
            return served
        return _listed(kind)
    except (click.ClickException, OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError):
        return []


def _served(kind: str, runtime: Path) -> list[str]:
    """Frontends or backends of a balancer on this machine; empty without one."""
    try:
        status = send_command(runtime, "balancer", "balancer")
    except click.ClickException:
        return []
    return sorted({one["name"] for one in status[f"{kind}s"]})


def _listed(kind: str) -> list[str]:
    """Objects of the inventory, listed by a process of its own: one that hangs is ended, and says nothing here."""
    command = [sys.executable, "-P", "-m", "holdfast.cli", "get", f"{kind}s", "-o", "json"]
    # Without the shell's request it prints the list; with it, it would complete its own words, and so on for ever.
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_COMPLETE")}
    done = subprocess.run(  # noqa: S603 -- our own command
        command, capture_output=True, timeout=_WITHIN_S, check=True, stdin=subprocess.DEVNULL, env=environ
    )
    return [str(one["name"]) for one in json.loads(done.stdout)]
