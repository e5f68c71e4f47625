"""`holdfast lab`: start a demo fleet on this machine (`up`), break it (`break NAME`) and stop it (`down`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import click

from holdfast.cli.common.control_socket import CannotTell, roles
from holdfast.cli.common.own_lab import LAB_FOLDER, folder_flag, owner_of_another
from holdfast.cli.daemons.run import run_role
from holdfast.cli.lab import screen
from holdfast.cli.lab.down import down
from holdfast.cli.lab.scene import play
from holdfast.config import FlagValue
from holdfast.lab.fleet import fleet, layout, netns
from holdfast.lab.scenes.registry import SCENES
from holdfast.lab.scenes.stage import Broken, Lab, NotInThisLab
from holdfast.runtime.paths import RolePaths

_START_TIMEOUT_S = 400.0
_FEW_HOSTS = 2
_DASHBOARD = "127.0.0.1:9620"

kernel_flag = click.option(
    "--netns",
    "on_kernel",
    is_flag=True,
    help="Run the web site and the first hosts in network namespaces, on the kernel. Needs root or user namespaces.",
)


@click.group()
def lab() -> None:
    """Start a demo fleet on this machine, break it, or stop it."""


lab.add_command(down)


@lab.command(short_help="Start a demo fleet on this machine, without root.")
@click.option(
    "--dashboard",
    metavar="ADDRESS",
    help=f"Loopback address of the dashboard, or off. Default: {_DASHBOARD}, or a free port if it is taken.",
)
@click.option(
    "--hosts",
    default=layout.DEFAULT_HOSTS,
    show_default=True,
    type=click.IntRange(2, 99),
    help="Number of hosts in a new lab; an agent runs for each.",
)
@click.option("--config", "config_file", metavar="FILE", help="Configuration file.")
@folder_flag
@kernel_flag
@click.option("--prepared", is_flag=True, hidden=True, help="Run the fleet behind the screen of another process.")
def up(
    folder: Path, config_file: str | None, hosts: int, dashboard: str | None, on_kernel: bool, prepared: bool
) -> None:
    """Start a demo fleet on this machine, without root. Ctrl-C, or `holdfast lab down`, stops all of it."""
    if prepared:
        _run_fleet(folder, config_file, dashboard or "off")
    elif on_kernel:
        _run_on_kernel(folder, config_file, hosts, dashboard)
    else:
        _run(folder, config_file, hosts, dashboard)


def _run_on_kernel(folder: Path, config_file: str | None, hosts: int, dashboard: str | None) -> None:
    """Run in namespaces of our own; an unprivileged user becomes root of a user namespace first."""
    try:
        if os.geteuid() != 0:
            # A browser outside of the namespace cannot reach an address inside.
            command = netns.unshared([sys.executable, "-P", "-m", "holdfast.cli", *sys.argv[1:], "--dashboard", "off"])
            os.execvp(command[0], command)  # noqa: S606 -- the same command, in a user namespace
        with netns.created(folder.absolute() / "state"):
            _run(folder, config_file, hosts, dashboard, on_kernel=True)
    except netns.NoNamespaces as missing:
        raise click.ClickException(str(missing)) from missing


def _run(folder: Path, config_file: str | None, hosts: int, dashboard: str | None, *, on_kernel: bool = False) -> None:
    address = _dashboard_address(dashboard)
    base = folder.absolute()
    try:
        if not on_kernel:
            netns.remove_record(base / "state")
        layout.set_host_count(base / "state", hosts)
    except OSError as error:
        message = f"the lab's files cannot be written to {base}: {error.strerror}; name another folder with --dir"
        raise click.ClickException(message) from error
    if not screen.wanted():
        _run_fleet(base, config_file, address, ready=partial(_welcome, _typed(base), address))
    config = ["--config", config_file] if config_file else []
    words = ["lab", "up", "--prepared", "--dir", str(base), "--dashboard", address, *config]
    command = [sys.executable, "-P", "-m", "holdfast.cli", *words]
    raise click.exceptions.Exit(screen.run(base, command, partial(_welcome, _typed(base), address)))


def _run_fleet(
    base: Path, config_file: str | None, dashboard: str, ready: Callable[[RolePaths | None], None] = lambda _paths: None
) -> NoReturn:
    flags = (
        FlagValue("--dir", "paths.state", str(base / "state")),
        FlagValue("--dir", "paths.runtime", str(base / "run")),
        FlagValue("--dashboard", "http.api", dashboard),
    )
    run_role(fleet.ROLE, fleet.WORKERS, config_file, flags, ready=ready)


def _dashboard_address(given: str | None) -> str:
    """Return the address for the dashboard; off where its packages are missing."""
    if given is not None:
        return given
    if find_spec("litestar") is None or find_spec("uvicorn") is None:
        return "off"
    host, _, port = _DASHBOARD.rpartition(":")
    for wanted in (int(port), 0):
        with contextlib.suppress(OSError), socket.create_server((host, wanted)) as free:
            return f"{host}:{free.getsockname()[1]}"
    return "off"


_TEXT_AT, _WIDTH = 40, 80
_GUIDE: tuple[tuple[str, str], ...] = (
    ("status", "daemons, leader, problems and how to solve them"),
    ("history", "decisions, with their reasons"),
    ("get hosts", "desired and observed; also: endpoints, servers, workers"),
    ("explain endpoint holdfast-web--01-eth0", "one object, from the inventory to the kernel"),
    ("agent peers --host r1-01", "the other hosts, as this agent sees them"),
    ("balancer status", "frontends and their backends"),
    ("", ""),
    ("lab break leader-freeze", "freeze the leader for a minute; its late writes are refused"),
    ("lab break ip-reuse", "give a deleted host's addresses to new owners"),
    ("lab break balancer-restart", "kill the balancer; no request fails"),
    ("lab break --help", "all scenes"),
)


def _welcome(typed: str, dashboard: str, _paths: RolePaths | None = None) -> None:
    shown = "The dashboard needs the extra api: pip install 'holdfast[api]'"
    if dashboard != "off" or find_spec("litestar") is not None:
        shown = f"Dashboard: http://{dashboard}/" if dashboard != "off" else "The dashboard is off."
    guide = "\n".join(_guide(typed))
    click.echo(
        f"""
{shown}

Holdfast runs: an etcd, {len(layout.SERVERS)} servers with an inventory, an agent for each host, a
balancer with a web site, and a client that sends requests to it.
In another terminal, in this folder:

{guide}

Ctrl-C, or {typed} lab down, stops everything.
""",
        err=True,
    )


def _typed(base: Path) -> str:
    """Return the command as it can be typed in this folder, for the lab there or in another one."""
    own = Path(sys.argv[0])
    command = "holdfast" if own.name != "holdfast" or shutil.which("holdfast") == str(own) else os.path.relpath(own)
    if base != Path(LAB_FOLDER).absolute():
        command += f" --lab {shlex.quote(str(base))}"
    belongs_to_root = os.geteuid() == 0 and "SUDO_UID" in os.environ
    return f"sudo {command}" if belongs_to_root else command


def _guide(command: str) -> Iterator[str]:
    """Yield the commands to try, in 80 columns. Pure."""
    for words, text in _GUIDE:
        line = f"  {command} {words}" if words else ""
        if len(line) < _TEXT_AT and _TEXT_AT + len(text) <= _WIDTH:
            yield f"{line:<{_TEXT_AT}}{text}".rstrip()
        else:
            yield line
            yield f"      {text}"


def _scene_list() -> str:
    """Return all scenes with their descriptions, as the end of the help text."""
    rows = [f"  {name:<30} {scene.summary}" for name, scene in SCENES.items()]
    return "\n".join(["\b", "Scenes:", *rows])


@lab.command("break", epilog=_scene_list(), short_help="Break something, and check what must not suffer.")
@click.argument("name", type=click.Choice(list(SCENES)), metavar="NAME")
@click.option("--start", is_flag=True, help="Start a lab for this scene only, and stop it afterwards.")
@click.option("--seconds", default=60.0, show_default=True, help="Duration of a freeze or an outage.")
@folder_flag
@kernel_flag
def break_it(name: str, start: bool, seconds: float, folder: Path, on_kernel: bool) -> None:
    """Play the scene NAME on the running lab: break something, and check what must not suffer from it.

    Prints the scene's promise and limit, waits for a healthy lab, and leaves a healthy one. Exits with 1 if the
    promise was broken, with 3 if the lab does not become healthy before, or is of another kind than the scene needs.
    """
    if on_kernel and not start:
        raise click.UsageError("--netns is for the lab of --start: one that runs is on the kernel already, or is not.")
    with started(on_kernel=on_kernel) if start else contextlib.nullcontext(folder.absolute()) as home:
        if not roles(home / "run"):
            owner = owner_of_another(home)
            raise CannotTell(
                f"no lab is running in {home}: start one with make up, or use --start"
                if owner is None
                else f"the lab in {home} belongs to {owner}, and only its owner can break it: run this as {owner}"
            )
        try:
            asyncio.run(play(name, SCENES[name], Lab(home), seconds))
        except NotInThisLab as unfit:
            raise CannotTell(str(unfit)) from unfit
        except Broken as broken:
            raise click.ClickException(str(broken)) from broken
    click.echo(f"{name}: the promise was kept")


@contextlib.contextmanager
def started(*, on_kernel: bool = False) -> Iterator[Path]:
    """Start a lab in `.holdfast` of a temporary folder, and stop it after the block."""
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as name:
        folder = Path(name) / LAB_FOLDER
        folder.mkdir()
        words = ["lab", "up", "--dir", str(folder), "--hosts", str(_FEW_HOSTS), "--dashboard", "off"]
        words += ["--netns"] if on_kernel else []
        command = [sys.executable, "-P", "-m", "holdfast.cli", *words]
        with (folder / "lab.log").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)  # noqa: S603
            try:
                _wait_for(folder, process)
                yield folder
            finally:
                process.terminate()
                process.wait()


def _wait_for(folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError, ValueError):
            if Lab(folder).leader() and all(Lab(folder).is_up(one) for one in layout.SERVERS):
                return
        time.sleep(0.1)
    log = (folder / "lab.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise click.ClickException(f"the lab did not start: {log[-1] if log else f'exit code {process.returncode}'}")
