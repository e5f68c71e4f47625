"""Talking to the daemons of this machine: where their sockets are, one question, one answer."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.common.config_flags import effective
from holdfast.runtime.control import Request, ask

CANNOT_TELL = 2
LAB_FOLDER = Path(".holdfast")

F = TypeVar("F", bound=Callable[..., Any])


def runtime_flag(command: F) -> F:
    """Adds `--runtime DIR`; it arrives as `runtime`, a folder."""
    return click.option(
        "--runtime",
        metavar="DIR",
        callback=_runtime,
        help="The daemon's runtime folder. Default: paths.runtime of the configuration, else .holdfast/run here.",
    )(command)


def _runtime(_context: click.Context, _parameter: click.Parameter, given: str | None) -> Path:
    if given:
        return Path(given)
    configured = Path(effective(None).config.paths.runtime)
    lab = LAB_FOLDER / "run"
    # A lab in the working folder is used only if it is ours: somebody else's could answer anything.
    if not roles(configured) and roles(lab) and lab.stat().st_uid == os.getuid():
        return lab
    return configured


def roles(runtime: Path) -> list[str]:
    """The daemons that have a control socket in this folder, or, as in a lab, in a folder of their own below it."""
    try:
        found = [
            path.relative_to(runtime).with_suffix("") for path in (*runtime.glob("*.sock"), *runtime.glob("*/*.sock"))
        ]
        return sorted(str(path) for path in found if "." not in path.name)
    except OSError:
        return []


def label(role: str) -> str:
    """What people call a daemon: `server`, or in a lab `ctl-1` for the server that is called so."""
    return role.rpartition("/")[0] or role


def answer(runtime: Path, role: str, request: Request) -> Any:
    """The daemon's answer; an error ends the command with its sentence."""
    said = asyncio.run(ask(runtime / f"{role}.sock", request))
    if said.error:
        raise click.ClickException(said.error)
    return said.result


def workers(runtime: Path) -> dict[str, str]:
    """The workers of all daemons here that have work to do, and whose they are."""
    found: dict[str, str] = {}
    for role in roles(runtime):
        running = [one for one in answer(runtime, role, Request("status"))["workers"] if one["phase"] != "completed"]
        prefix = f"{label(role)}/" if "/" in role else ""
        found |= {f"{prefix}{one['name']}": role for one in running}
    if not found:
        raise nobody(runtime)
    return found


SPEAKS_FOR = {"server": "elector", "balancer": "vips", "agent": "peers"}
"""Whoever is meant when a person names the daemon instead of a worker."""


def found(name: str, known: Collection[str]) -> str:
    """The worker that a person means. In a lab there may be several of a name, so one has to be told."""
    daemon, slash, worker = name.rpartition("/")
    meant = f"{daemon}{slash}{SPEAKS_FOR.get(worker, worker)}"
    several = [one for one in known if one.endswith(f"/{meant}")]
    if meant in known:
        return meant
    if len(several) == 1:
        return several[0]
    if several:
        raise click.ClickException(f"there is more than one {name} here; say which: {', '.join(several)}")
    raise click.ClickException(f"there is no worker {meant!r} here; there are: {', '.join(known)}")


def tell(runtime: Path, worker: str, command: str, **args: object) -> Any:
    """Passes a command on to one worker; in a lab it is called DAEMON/WORKER."""
    known = workers(runtime)
    worker = found(worker, known)
    role = known[worker]
    return answer(runtime, role, Request("tell", {"do": command, "args": args}, worker.rpartition("/")[2]))


def leading(runtime: Path, worker: str) -> str:
    """The worker that is meant, where the servers of one machine have one of that name each: the one that leads."""
    known = [one for one in workers(runtime) if one.rpartition("/")[2] == worker]
    if len(known) < 2:
        return worker
    return next((one for one in known if _works(runtime, one)), known[0])


def _works(runtime: Path, worker: str) -> bool:
    """Whether it does its work here: one that follows declines to tell what it holds."""
    try:
        tell(runtime, worker, "held")
    except click.ClickException:
        return False
    return True


LEADER_ONLY = ("syncer", "agent-status", "endpoint-status")
"""Workers of which only the leader's does anything."""


class CannotTell(click.ClickException):
    """The question cannot be answered."""

    exit_code = CANNOT_TELL


def nobody(runtime: Path) -> CannotTell:
    return CannotTell(f"no Holdfast daemon runs in {runtime}: start one with holdfast up, or name --runtime DIR")
