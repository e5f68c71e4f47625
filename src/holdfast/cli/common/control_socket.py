"""Requests to the daemons of this machine through their control sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.common.config_flags import effective
from holdfast.runtime.control import Request, ask

CANNOT_TELL = 3
REFUSED = 4
LAB_FOLDER = Path(".holdfast")

F = TypeVar("F", bound=Callable[..., Any])


def runtime_flag(command: F) -> F:
    """Add `--runtime DIR`; it arrives as `runtime`, a folder."""
    return click.option(
        "--runtime",
        metavar="DIR",
        callback=_runtime,
        help="Runtime folder of the daemon. Default: paths.runtime, else .holdfast/run in the working folder.",
    )(command)


def _runtime(_context: click.Context, _parameter: click.Parameter, given: str | None) -> Path:
    return runtime_folder(given)


def runtime_folder(given: str | None) -> Path:
    """Return the folder that `--runtime` names, or the default one."""
    if given:
        return Path(given)
    configured = Path(effective(None).config.paths.runtime)
    lab = LAB_FOLDER / "run"
    # A lab in the working folder is used only if this user owns it: another user's could answer anything.
    if not roles(configured) and roles(lab) and lab.stat().st_uid == os.getuid():
        return lab
    return configured


def roles(runtime: Path) -> list[str]:
    """Return the daemons with a control socket in this folder or, as in a lab, in a folder of their own below it."""
    try:
        found = [
            path.relative_to(runtime).with_suffix("") for path in (*runtime.glob("*.sock"), *runtime.glob("*/*.sock"))
        ]
        return sorted(str(path) for path in found if "." not in path.name)
    except OSError:
        return []


def label(role: str) -> str:
    """Return the display name of a daemon: `server`, or in a lab the server's name, such as `ctl-1`."""
    return role.rpartition("/")[0] or role


def answer(runtime: Path, role: str, request: Request, within: float = 5.0) -> Any:
    """Return the daemon's answer; an error, or none within that many seconds, ends the command with its message."""
    reply = asyncio.run(ask(runtime / f"{role}.sock", request, within))
    if reply.error:
        raise CannotTell(reply.error) if reply.silent else click.ClickException(reply.error)
    return reply.result


def workers(runtime: Path) -> dict[str, str]:
    """Return the workers of all daemons here that have not completed, each with its daemon. A daemon that does not
    answer, as of several in a lab, does not keep an operator from the others."""
    found: dict[str, str] = {}
    silent: list[click.ClickException] = []
    for role in roles(runtime):
        try:
            status = answer(runtime, role, Request("status"))
        except click.ClickException as error:
            silent.append(error)
            continue
        prefix = f"{label(role)}/" if "/" in role else ""
        found |= {f"{prefix}{one['name']}": role for one in status["workers"] if one["phase"] != "completed"}
    if not found:
        raise silent[0] if silent else no_daemon(runtime)
    return found


def workers_named(runtime: Path, name: str) -> list[str]:
    """Return the workers of that name, one for each daemon that has one: in a lab there may be several."""
    return [one for one in workers(runtime) if one.rpartition("/")[2] == name]


MAIN_WORKER = {"server": "elector", "balancer": "vips", "agent": "peers"}
"""The worker that is meant when an operator names the daemon instead of a worker."""


def resolve(name: str, known: Collection[str]) -> str:
    """Return the worker that an operator means. In a lab a name may be ambiguous."""
    daemon, slash, worker = name.rpartition("/")
    meant = f"{daemon}{slash}{MAIN_WORKER.get(worker, worker)}"
    several = [one for one in known if one.endswith(f"/{meant}")]
    if meant in known:
        return meant
    if len(several) == 1:
        return several[0]
    if several:
        raise click.ClickException(f"{name} is ambiguous here: name one of {', '.join(several)}")
    raise click.ClickException(f"no worker {meant!r} here: name one of {', '.join(known)}")


def send_command(runtime: Path, worker: str, command: str, **args: object) -> Any:
    """Send a query to one worker, and return its answer; in a lab a worker is called DAEMON/WORKER."""
    known = workers(runtime)
    worker = resolve(worker, known)
    role = known[worker]
    return answer(runtime, role, Request("tell", {"do": command, "args": args}, worker.rpartition("/")[2]))


def request_change(runtime: Path, worker: str, command: str, **args: object) -> Any:
    """Send a command that changes something: a daemon that declines it has refused (exit code 4)."""
    known = workers(runtime)
    worker = resolve(worker, known)
    request = Request("tell", {"do": command, "args": args}, worker.rpartition("/")[2])
    with refusals():
        return answer(runtime, known[worker], request)


@contextmanager
def refusals() -> Iterator[None]:
    """End the command with exit code 4 where a daemon declines; one that does not answer has not refused."""
    try:
        yield
    except CannotTell:
        raise
    except click.ClickException as declined:
        raise Refused(declined.message) from declined


def electors(runtime: Path) -> dict[str, dict[str, Any]]:
    """Return what the electors here say about their servers; one that hangs is left out, unless all do."""
    found: dict[str, dict[str, Any]] = {}
    silent: list[click.ClickException] = []
    for one in workers_named(runtime, "elector"):
        try:
            found[one] = send_command(runtime, one, "about")
        except click.ClickException as error:
            silent.append(error)
    if silent and not found:
        raise silent[0]
    return found


def leading(runtime: Path, worker: str) -> str:
    """Return the worker of that name that leads, where several servers run on this machine."""
    known = workers_named(runtime, worker)
    if len(known) < 2:
        return worker
    return next((one for one in known if _leads(runtime, one)), known[0])


def _leads(runtime: Path, worker: str) -> bool:
    try:
        send_command(runtime, worker, "held")  # a follower declines this
    except click.ClickException:
        return False
    return True


LEADER_ONLY = ("syncer", "agent-status", "endpoint-status")
"""Workers that act on the leader only."""


class CannotTell(click.ClickException):
    """The state is unknown: no daemon answers."""

    exit_code = CANNOT_TELL


class Refused(click.ClickException):
    """The daemon refused the request; the message is its reason."""

    exit_code = REFUSED


def no_daemon(runtime: Path) -> CannotTell:
    return CannotTell(f"no Holdfast daemon is running in {runtime}: start one with holdfast up, or set --runtime DIR")
