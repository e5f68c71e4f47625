"""Checks of an agent that runs on this machine: whether its watch fits the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from holdfast.cli.common.control_socket import send_command
from holdfast.cli.daemons.agent import WORKER
from holdfast.cli.doctor import Finding, Severity

MOST_SKIPPED = 10.0
"""Changes of other kinds per second beyond which every agent's watch costs etcd too much."""


def about_agent(runtime: Path) -> dict[str, Any] | None:
    """Ask the running agent about itself; None if none runs here."""
    try:
        found: dict[str, Any] = send_command(runtime, WORKER, "about")
    except click.ClickException:
        return None
    return found


def watch(about: dict[str, Any]) -> Iterator[Finding]:
    """Check how many changes of other kinds the agent's watch delivers."""
    rate = about.get("skipped_per_second", 0.0)
    if rate > MOST_SKIPPED:
        sentence = (
            f"mesh mode does not fit this etcd: its other users change {rate:.0f} keys per second between "
            "livemigrations and workloadendpoints, and etcd sends each change to every agent; give Holdfast an etcd "
            "of its own, or reduce these changes"
        )
        yield Finding(Severity.WRONG, "watch", sentence)
    else:
        yield Finding(Severity.GOOD, "watch", f"the agent skips {rate:.1f} changes of other kinds per second")
