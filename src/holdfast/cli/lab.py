"""`holdfast up` and `holdfast lab`: start a demo fleet on this machine, and break it (`holdfast lab break NAME`)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.common.control_socket import LAB_FOLDER, roles
from holdfast.cli.daemons.run import run_role
from holdfast.config import FlagValue
from holdfast.lab.fleet import fleet, layout, netns
from holdfast.lab.scenes.registry import SCENES
from holdfast.lab.scenes.stage import Broken, Lab
from holdfast.runtime.paths import RolePaths

_START_TIMEOUT_S = 180.0
_FEW_HOSTS = 2

F = TypeVar("F", bound=Callable[..., Any])


def lab_flags(command: F) -> F:
    """Add `--dir`, `--config` and `--hosts`; they arrive as `folder`, `config_file` and `hosts`."""
    for option in (
        click.option(
            "--hosts",
            default=layout.DEFAULT_HOSTS,
            show_default=True,
            type=click.IntRange(2, 99),
            help="Number of hosts in a new lab; an agent runs for each.",
        ),
        click.option("--config", "config_file", metavar="FILE", help="Configuration file."),
        click.option("--dir", "folder", default=str(LAB_FOLDER), help="Folder for the lab's files.", show_default=True),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True)
@lab_flags
@click.option(
    "--netns",
    "on_kernel",
    is_flag=True,
    help="Run the web site and the first hosts in network namespaces, on the kernel. Needs root or user namespaces.",
)
@click.pass_context
def lab(context: click.Context, folder: str, config_file: str | None, hosts: int, on_kernel: bool) -> None:
    """Start a demo fleet on this machine, or break one that runs."""
    if context.invoked_subcommand is None and on_kernel:
        _run_on_kernel(folder, config_file, hosts)
    elif context.invoked_subcommand is None:
        _run(folder, config_file, hosts)


@click.command()
@lab_flags
def up(folder: str, config_file: str | None, hosts: int) -> None:
    """Start a demo fleet on this machine, without root. Ctrl-C stops all of it."""
    _run(folder, config_file, hosts)


def _run_on_kernel(folder: str, config_file: str | None, hosts: int) -> None:
    """Run in namespaces of our own; an unprivileged user becomes root of a user namespace first."""
    try:
        if os.geteuid() != 0:
            command = netns.unshared([sys.executable, "-P", "-m", "holdfast.cli", *sys.argv[1:]])
            os.execvp(command[0], command)  # noqa: S606 -- the same command, in a user namespace
        with netns.created(Path(folder).absolute() / "state"):
            _run(folder, config_file, hosts, on_kernel=True)
    except netns.NoNamespaces as missing:
        raise click.ClickException(str(missing)) from missing


def _run(folder: str, config_file: str | None, hosts: int, *, on_kernel: bool = False) -> None:
    base = Path(folder).absolute()
    if not on_kernel:
        netns.remove_record(base / "state")
    layout.set_host_count(base / "state", hosts)
    flags = (
        FlagValue("--dir", "paths.state", str(base / "state")),
        FlagValue("--dir", "paths.runtime", str(base / "run")),
    )
    run_role(fleet.ROLE, fleet.WORKERS, config_file, flags, ready=_welcome)


def _welcome(_paths: RolePaths) -> None:
    click.echo(
        f"""
Holdfast runs: an etcd, {len(layout.SERVERS)} servers with an inventory, an agent for each host, a balancer with a
web site, and a client that sends requests to it. In another terminal, in this folder:

  holdfast status                   daemons, leader, problems and how to solve them
  holdfast leader                   current and former leaders
  holdfast history                  decisions, with their reasons
  holdfast get hosts                objects of the inventory; also: networks, endpoints
  holdfast explain endpoint holdfast-web--01-eth0
                                    one object, from the inventory to the kernel; also: host r1-02
  holdfast agent peers --host r1-01 the other hosts, as this agent sees them; also: agent pending
  holdfast balancer status          frontends and their backends

  holdfast lab break leader-freeze  freeze the leader for a minute; its late writes are refused
  holdfast lab break etcd-restart   kill etcd
  holdfast lab break database-emptied
                                    empty the inventory; nothing is deleted from the store
  holdfast lab break ip-reuse       give a deleted host's addresses to new owners
  holdfast lab break balancer-restart
                                    kill the balancer; no request fails
  holdfast lab break --help         all scenes

Ctrl-C stops everything.
""",
        err=True,
    )


def _scene_list() -> str:
    """Return all scenes with their descriptions, as the end of the help text."""
    rows = [f"  {name:<30} {(scene.__doc__ or '').partition('.')[0]}." for name, scene in SCENES.items()]
    return "\n".join(["\b", "Scenes:", *rows])


@lab.command("break", epilog=_scene_list())
@click.argument("name", type=click.Choice(list(SCENES)), metavar="NAME")
@click.option("--start", is_flag=True, help="Start a lab for this scene only, and stop it afterwards.")
@click.option("--seconds", default=60.0, show_default=True, help="Duration of a freeze or an outage.")
@click.pass_context
def break_it(context: click.Context, name: str, start: bool, seconds: float) -> None:
    """Play the scene NAME on the running lab: break something, and check what must not suffer from it.

    Exits with 1 if a promise was broken.
    """
    assert context.parent is not None
    given = str(context.parent.params["folder"])
    on_kernel = bool(context.parent.params["on_kernel"])
    with started(on_kernel=on_kernel) if start else contextlib.nullcontext(Path(given).absolute()) as folder:
        if not roles(folder / "run"):
            raise click.ClickException(f"no lab is running in {folder}: start one with make up, or use --start")
        try:
            asyncio.run(_play(name, Lab(folder), seconds))
        except Broken as broken:
            raise click.ClickException(str(broken)) from broken
    click.echo(f"{name}: the promise was kept")


async def _play(name: str, running: Lab, seconds: float) -> None:
    began = time.monotonic()
    await SCENES[name](running, lambda line: click.echo(f"{time.monotonic() - began:6.2f} s  {line}"), seconds)


@contextlib.contextmanager
def started(*, on_kernel: bool = False) -> Iterator[Path]:
    """Start a lab in a temporary folder, and stop it after the block."""
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as name:
        folder = Path(name)
        words = ["lab", "--dir", name, "--hosts", str(_FEW_HOSTS), *(["--netns"] if on_kernel else [])]
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
