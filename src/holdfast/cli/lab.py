"""`holdfast lab`: a fleet on this machine, and `holdfast lab break`: what the field does to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.cli.common.control_socket import LAB_FOLDER, roles
from holdfast.cli.daemons.run import run_role
from holdfast.config import FlagValue
from holdfast.lab import demo
from holdfast.lab.fleet import fleet, inventory, netns
from holdfast.lab.scenes.leader import SCENES
from holdfast.lab.scenes.stage import Broken, Lab
from holdfast.runtime.paths import RolePaths

_UP_WITHIN = 180.0
_FEW_HOSTS = 2

folder_flag = click.option(
    "--dir", "folder", default=str(LAB_FOLDER), help="Where the lab keeps its files.", show_default=True
)
config_flag = click.option("--config", "config_file", metavar="FILE", help="Configuration file.")
hosts_flag = click.option(
    "--hosts",
    default=inventory.FIRST_HOSTS,
    show_default=True,
    type=click.IntRange(2, 99),
    help="How many hosts the fleet begins with; an agent runs for each.",
)


netns_flag = click.option(
    "--netns",
    "on_kernel",
    is_flag=True,
    help="The web site in network namespaces, balanced by the kernel; as root, or in a user namespace of its own.",
)


@click.group(invoke_without_command=True)
@folder_flag
@config_flag
@hosts_flag
@netns_flag
@click.pass_context
def lab(context: click.Context, folder: str, config_file: str | None, hosts: int, on_kernel: bool) -> None:
    """Run a small fleet on this machine, without root, and break it."""
    if context.invoked_subcommand is None and on_kernel:
        _run_on_kernel(folder, config_file, hosts)
    elif context.invoked_subcommand is None:
        _run(folder, config_file, hosts)


@click.command()
@folder_flag
@config_flag
@hosts_flag
def up(folder: str, config_file: str | None, hosts: int) -> None:
    """Run a small fleet on this machine, without root. Ctrl-C stops everything it started."""
    _run(folder, config_file, hosts)


def _run_on_kernel(folder: str, config_file: str | None, hosts: int) -> None:
    """As root, in namespaces of its own; as anybody else the same, by becoming root of a namespace first."""
    try:
        if os.geteuid() != 0:
            words = netns.unshared([sys.executable, "-P", "-m", "holdfast.cli", *sys.argv[1:]])
            os.execvp(words[0], words)  # noqa: S606 -- the same command, elsewhere
        with netns.ground(Path(folder).absolute() / "state"):
            _run(folder, config_file, hosts, on_kernel=True)
    except netns.NoNamespaces as sentence:
        raise click.ClickException(str(sentence)) from sentence


def _run(folder: str, config_file: str | None, hosts: int, *, on_kernel: bool = False) -> None:
    base = Path(folder).absolute()
    if not on_kernel:
        netns.forget(base / "state")
    inventory.begin(base / "state", hosts)
    flags = (
        FlagValue("--dir", "paths.state", str(base / "state")),
        FlagValue("--dir", "paths.runtime", str(base / "run")),
    )
    run_role(fleet.ROLE, fleet.WORKERS, config_file, flags, ready=_welcome)


def _welcome(paths: RolePaths) -> None:
    click.echo(
        f"""
Holdfast runs: an etcd, {len(fleet.SERVERS)} servers with an inventory, the agents of its hosts, a balancer with a web
site and a client that uses it all the time, and a demonstration of the loop that makes every write.
In another terminal, in this folder:

  holdfast status                  what runs, who leads, and what needs you
  holdfast lab break leader-freeze freeze the leader for a minute; its writes are refused when it wakes
  holdfast lab break leader-kill   kill -9 the leader's whole process tree
  holdfast lab break etcd-restart  kill -9 etcd
  holdfast lab break database-emptied
                                   empty the inventory; nothing is deleted. Also: database-away
  holdfast explain endpoint holdfast-web--01-eth0
                                   who wanted it, why, and whether the store has it
  holdfast lab break balancer-restart
                                   kill -9 the balancer; also: backend-down, drain
  holdfast lab break ip-reuse      a new host has a dead host's addresses; also: agent-kill,
                                   node-gone-while-agent-down
  holdfast balancer status         what is served, by whom
  holdfast agent peers --host r1-01
                                   the other hosts, as an agent sees them; also: agent pending
  holdfast explain host r1-02      what is known of a host, and what it is to the others
  holdfast leader --endpoints {fleet.endpoint(paths.state)}
                                   who led before, and why that ended
  holdfast history                 what was decided, and why
  edit {demo.wanted_file(paths.state)}
                                   routes follow; drop more than half, and the brake holds them:
  holdfast plan routes             what is held, and what opens it

Ctrl-C stops everything.
""",
        err=True,
    )


@lab.command("break")
@click.argument("thing", type=click.Choice(list(SCENES)))
@click.option("--start", is_flag=True, help="Bring a lab up for just this, and take it down after.")
@click.option("--seconds", default=60.0, show_default=True, help="How long a freeze lasts.")
@click.pass_context
def break_it(context: click.Context, thing: str, start: bool, seconds: float) -> None:
    """Do THING to the lab; exits with 1 when a promise was broken."""
    assert context.parent is not None
    given = str(context.parent.params["folder"])
    on_kernel = bool(context.parent.params["on_kernel"])
    with started(on_kernel=on_kernel) if start else contextlib.nullcontext(Path(given).absolute()) as folder:
        if not roles(folder / "run"):
            raise click.ClickException(f"no lab runs in {folder}: start one with make up, or use --start")
        try:
            asyncio.run(_play(thing, Lab(folder), seconds))
        except Broken as broken:
            raise click.ClickException(str(broken)) from broken
    click.echo(f"{thing}: the promise was kept")


async def _play(thing: str, played: Lab, seconds: float) -> None:
    began = time.monotonic()
    await SCENES[thing](played, lambda line: click.echo(f"{time.monotonic() - began:6.2f} s  {line}"), seconds)


@contextlib.contextmanager
def started(*, on_kernel: bool = False) -> Iterator[Path]:
    """A lab of its own in a temporary folder, ended with us."""
    with tempfile.TemporaryDirectory(prefix="holdfast-lab-") as name:
        folder = Path(name)
        command = [
            sys.executable,
            "-P",
            "-m",
            "holdfast.cli",
            "lab",
            "--dir",
            name,
            "--hosts",
            str(_FEW_HOSTS),
            *(["--netns"] if on_kernel else []),
        ]
        with (folder / "lab.log").open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)  # noqa: S603
            try:
                _wait_for(folder, process)
                yield folder
            finally:
                process.terminate()
                process.wait()


def _wait_for(folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _UP_WITHIN
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError, ValueError):
            if Lab(folder).leader() and all(Lab(folder).is_up(one) for one in fleet.SERVERS):
                return
        time.sleep(0.1)
    said = (folder / "lab.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise click.ClickException(f"the lab did not come up: {said[-1] if said else f'exit code {process.returncode}'}")
