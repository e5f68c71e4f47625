"""Plays a scene of `holdfast lab break`: prints its promise and limit first, waits for a healthy lab, and leaves one.

What a scene finds broken it cannot blame on itself, and what it leaves broken is part of what it did.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from holdfast.cli.common.control_socket import CANNOT_TELL, roles
from holdfast.cli.common.format import wrapped
from holdfast.cli.lab.screen import expected
from holdfast.cli.status.page import is_healthy
from holdfast.cli.status.problems import LAB, problems
from holdfast.cli.status.view import StatusView, read_status
from holdfast.lab.fleet import layout
from holdfast.lab.scenes.stage import Broken, Lab, Scene

_HEALTHY_WITHIN_S = 240.0
"""Far more than a scene needs: for a busy machine."""
_POLL_S = 0.5
_WIDTH = 80


class Unhealthy(click.ClickException):
    """The lab is not healthy, so that a scene would prove nothing."""

    exit_code = CANNOT_TELL


async def play(name: str, scene: Scene, lab: Lab, seconds: float) -> None:
    """Play a scene on a healthy lab. Raises `Broken` if its promise was broken, or if the lab is not healthy after."""
    for line in introduction(name, scene):
        click.echo(line)
    began = time.monotonic()

    def say(text: str) -> None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        for line in wrapped(f"{time.monotonic() - began:6.2f} s  ", text, width):
            click.echo(line)

    left = await wait_until_healthy(lab, lambda: say("waiting for a healthy lab"))
    if left:
        raise Unhealthy(f"the lab is not healthy, so nothing was broken: {left}")
    began = time.monotonic()
    await scene.play(lab, say, seconds)
    ended = time.monotonic()
    left = await wait_until_healthy(lab, release=True)
    if left:
        raise Broken(f"the lab is not healthy {time.monotonic() - ended:.0f} s after the scene: {left}")
    say(f"the lab is healthy, {time.monotonic() - ended:.2f} s after the scene")


def introduction(name: str, scene: Scene) -> list[str]:
    """Return the lines that are printed before anything is broken. Pure."""
    return [
        *wrapped(f"{name}: ", scene.summary, _WIDTH, "  "),
        *wrapped("  Promise:  ", scene.promise, _WIDTH),
        *wrapped("  Limit:    ", scene.limit, _WIDTH),
    ]


async def wait_until_healthy(lab: Lab, waits: Callable[[], None] | None = None, *, release: bool = False) -> str:
    """Wait until everything of the lab is known to be healthy; return what still is not when time is up.

    With `release`, what the brakes hold is released: it is what the scene itself has changed. A change that the syncer
    has not seen yet may be held a moment later, so there must be none.
    """
    deadline, said = time.monotonic() + _HEALTHY_WITHIN_S, waits is None
    while (left := await _unhealthy(lab.folder) or (lab.unsynced() if release else "")) and time.monotonic() < deadline:
        if not said and waits is not None:
            waits()
            said = True
        if release:
            await _release(lab)
        await asyncio.sleep(_POLL_S)
    return left


async def _release(lab: Lab) -> None:
    """Release what the brakes hold; at the agents only once etcd has what the inventory has: what a restored store
    lacks may come back."""
    await lab.release_brake()
    if not lab.unsynced():
        await lab.release_agents()


async def _unhealthy(folder: Path) -> str:
    """Return the first thing that is not healthy, with the command that solves it; empty if all is well."""
    if not roles(folder / "run"):
        return "no daemon of it runs"
    try:
        view = await read_status(folder / "run")
    except click.ClickException as error:
        return error.message
    missing = sorted(daemons(view, folder / "state") - {one.role for one in view.reports})
    if missing:
        return f"{', '.join(missing)} did not start"
    if is_healthy(view):
        return ""
    found = problems(view)
    if not found:
        return "a daemon does not answer: see holdfast status"
    first = found[0]
    step = first.release or first.fix or first.inspect
    return f"{first.subject}: {first.sentence}" + (f"; run: {step}" if step else "")


def daemons(view: StatusView, state: Path) -> frozenset[str]:
    """Return the names of the daemons that this lab runs, of which a test may start some only."""
    workers = {worker.name for one in view.reports if one.role == LAB for worker in one.workers}
    hosts = layout.hosts(state) if "agents" in workers else ()
    return expected(state) & {LAB, *workers, *hosts}
