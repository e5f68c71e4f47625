"""`holdfast lab down`: stop the lab of a folder, and wait until its processes are gone."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from holdfast.cli.common.control_socket import Refused
from holdfast.cli.common.own_lab import folder_flag, is_own, owner_of_another
from holdfast.lab.fleet.fleet import ROLE
from holdfast.runtime.daemon.process import descendants, lock_holder, parent_of
from holdfast.runtime.paths import RolePaths

_WITHIN_S = 60.0
_BEHIND_A_SCREEN = b"--prepared"
"""Word in the command line of a fleet that its parent shows on a terminal; that parent ends after it."""


@click.command(short_help="Stop the lab that runs in this folder.")
@folder_flag
def down(folder: Path) -> None:
    """Stop the lab that runs in this folder, and wait until its processes are gone. Its files stay.

    Exits with 0 if no lab runs there any more, also if none did, with 1 if a process does not end, with 4 if the lab
    belongs to another user.
    """
    supervisor = _supervisor(folder)
    if supervisor is None:
        click.echo(f"no lab is running in {folder}", err=True)
        return
    began = time.monotonic()
    with _opened([supervisor, *_screen(supervisor), *descendants(supervisor)]) as processes:
        if supervisor in processes:
            signal.pidfd_send_signal(processes[supervisor], signal.SIGTERM)
        left = _wait_for(processes, began + _WITHIN_S)
    if left:
        pids = " ".join(map(str, left))
        raise click.ClickException(
            f"processes of the lab in {folder} have not ended in {_WITHIN_S:g} s: kill -9 {pids}"
        )
    took = time.monotonic() - began
    click.echo(f"stopped the lab in {folder}: {len(processes)} processes, in {took:.1f} s; its files stay", err=True)


def _supervisor(folder: Path) -> int | None:
    """Return the process that runs the caller's lab, by its own record; None if none does. Raises `Refused` for a lab
    of another user."""
    lock = RolePaths(ROLE, folder / "run", folder / "state").lock
    for one in (folder, lock.parent):
        if not os.path.lexists(one):
            return None
        if (owner := owner_of_another(one)) is not None:
            raise Refused(
                f"the lab in {folder} belongs to {owner}, and only its owner can stop it: run this as {owner}"
            )
        if not is_own(one):
            raise Refused(f"{one} is a link or a file: name the folder of the lab itself with --dir")
    return lock_holder(lock)


def _screen(supervisor: int) -> list[int]:
    """Return the process that shows this fleet on a terminal, and cleans up after it."""
    try:
        words = Path(f"/proc/{supervisor}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
    parent = parent_of(supervisor)
    return [parent] if _BEHIND_A_SCREEN in words and parent is not None else []


@contextlib.contextmanager
def _opened(pids: Iterable[int]) -> Iterator[Mapping[int, int]]:
    """Open a descriptor of each process that has not ended; it stays that process when the id is used again."""
    opened = {}
    with contextlib.ExitStack() as stack:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                opened[pid] = os.pidfd_open(pid)
                stack.callback(os.close, opened[pid])
        yield opened


def _wait_for(processes: Mapping[int, int], deadline: float) -> list[int]:
    """Wait until all of them have ended; return those that have not when time is up."""
    pids, ends = {fd: pid for pid, fd in processes.items()}, select.poll()
    for fd in pids:
        ends.register(fd, select.POLLIN)
    while pids and (left_s := deadline - time.monotonic()) > 0:
        for fd, _ in ends.poll(left_s * 1_000):
            ends.unregister(fd)
            del pids[fd]
    return sorted(pids.values())
