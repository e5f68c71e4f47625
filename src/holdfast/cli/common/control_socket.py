"""Requests to the daemons of this machine through their control sockets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli import CONFIG_FILE
from holdfast.cli.common.own_lab import LAB_FOLDER, is_lab_named, own_lab, owner_of_another
from holdfast.config import ConfigRejected
from holdfast.config.sections.paths import PathSettings
from holdfast.runtime.config_file import load
from holdfast.runtime.control import Request, Who, ask

CANNOT_TELL = 3
REFUSED = 4
_KNOWN_S = 2.0
"""Time for a worker to answer what it knows by itself."""
_STORED_S = 12.0
"""Time for a worker to ask the store: longer than its calls take to find that the store hangs, and which member."""
_RELAY_S = 1.0
"""Time that the supervisor may add."""

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
    configured = Path(_paths().runtime)
    if roles(configured) and not is_lab_named():
        return configured
    lab = own_lab()
    return lab / "run" if lab is not None and (is_lab_named() or roles(lab / "run")) else configured


def _paths() -> PathSettings:
    """Return the configured folders; a broken configuration file does not keep an operator from looking."""
    context = click.get_current_context(silent=True)
    loaded = load(context.meta.get(CONFIG_FILE) if context is not None else None, os.environ, ())
    if not isinstance(loaded, ConfigRejected):
        return loaded.config.paths
    click.echo(f"warning: the configuration cannot be used, so the default folders are: {loaded}", err=True)
    return PathSettings()


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


def ask_any(runtime: Path, command: str) -> Any:
    """Return the answer of the first daemon here that has one: each reads the same store."""
    errors: dict[str, None] = {}
    for role in roles(runtime):
        reply = asyncio.run(ask(runtime / f"{role}.sock", Request(command)))
        if not reply.error:
            return reply.result
        errors[reply.error] = None
    raise CannotTell("; ".join(errors)) if errors else no_daemon(runtime)


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


_NAMED = 10
"""Workers that are named in an error; in a lab there are dozens."""
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
    listed = f"name one of {', '.join(known)}" if len(known) <= _NAMED else "holdfast get workers lists them"
    raise click.ClickException(f"no worker {meant!r} here: {listed}")


def send_command(runtime: Path, worker: str, command: str, within: float = _KNOWN_S, /, **args: object) -> Any:
    """Send a query to one worker, and return its answer; in a lab a worker is called DAEMON/WORKER."""
    known = workers(runtime)
    worker = resolve(worker, known)
    return answer(runtime, known[worker], _forwarded(worker, command, args, within), within + _RELAY_S)


def send_store_query(runtime: Path, worker: str, command: str, **args: object) -> Any:
    """Send a query for which the worker has to ask the store."""
    return send_command(runtime, worker, command, _STORED_S, **args)


def _forwarded(worker: str, command: str, args: Mapping[str, object], within: float, who: Who | None = None) -> Request:
    return Request("tell", {"do": command, "args": args}, worker.rpartition("/")[2], who, within)


def request_change(runtime: Path, worker: str, command: str, on_behalf: Who | None = None, /, **args: object) -> Any:
    """Send a command that changes something: a daemon that declines it has refused (exit code 4)."""
    known = workers(runtime)
    worker = resolve(worker, known)
    request = _forwarded(worker, command, args, _STORED_S, on_behalf)
    with refusals():
        return answer(runtime, known[worker], request, _STORED_S + _RELAY_S)


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
    """The error where no control socket is found: none is there, or this user may not look."""
    try:
        hidden = runtime.is_dir() and not os.access(runtime, os.R_OK | os.X_OK)
    except PermissionError:
        hidden = True
    if hidden:
        return CannotTell(f"this user may not read {runtime}: use sudo, or join the group of the folder")
    if (owner := owner_of_another()) is not None:
        return CannotTell(
            f"the lab in {LAB_FOLDER} belongs to {owner}, and only its owner can use it: run this as {owner}; "
            f"no other Holdfast daemon is running in {runtime}"
        )
    return CannotTell(
        f"no Holdfast daemon is running in {runtime}: start one with holdfast lab up, or set --runtime DIR"
    )
