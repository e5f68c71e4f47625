"""Real servers for tests: each a whole process tree that can be killed, frozen, thawed, stopped and started again.

    with controllers(cluster, 3, command=member.command) as fleet:
        fleet.leader().freeze()

All of one fleet share a region of their own, so that one etcd serves many fleets. `isolated` servers live each in a PID
namespace of its own (needs root): nobody can tell from outside whether such a process died, as on another host.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.leader import LEADER, Leader
from holdfast.model.control.leader_history import LEADERSHIP, LeaderHistory, LeaderPeriod
from holdfast.runtime.control import Answer, Request, ask
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.pulse import Pulse
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import Process, Unavailable, children, folder, tool, wait_until

Command = Callable[[Sequence[str]], Sequence[str]]
"""From `SECTION.FIELD=VALUE` settings to a command line."""

QUICK: Mapping[str, str] = {
    "server.ttl": "3s",
    "server.renew_every": "500ms",
    "server.renew_deadline": "2s",
    "server.rpc_timeout": "1s",
}
"""Timings for tests: short, and yet not so short that a busy machine loses a leadership."""

_PATIENCE = 30.0
_numbers = itertools.count(1)


class Controller:
    """One server: its supervisor and its workers."""

    def __init__(self, name: str, home: Path, command: Sequence[str], *, isolated: bool = False) -> None:
        self.name = name
        self.home = home
        self._isolated = isolated
        self.process = Process([*_namespace(isolated), *command], log=home / "log")

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.process.start()

    def tree(self) -> Sequence[int]:
        """Its processes, parents before children."""
        found = [self.process.pid] if self.process.alive else []
        for pid in found:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                found += children(pid)
        return found

    def freeze(self) -> None:
        """SIGSTOP for the whole tree."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL for the whole tree."""
        self._signal_all(signal.SIGKILL)
        self.process.kill()

    def stop(self) -> None:
        """SIGTERM for the supervisor, and waits until all has ended."""
        supervisor = children(self.process.pid)[0] if self._isolated else self.process.pid
        os.kill(supervisor, signal.SIGTERM)
        wait_until(lambda: not self.process.alive, f"{self.name} stops", within=_PATIENCE)

    def _signal_all(self, number: signal.Signals) -> None:
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def worker(self, name: str) -> int:
        """The pid of one worker, as the board says; only for servers that are not isolated."""
        pulse = Board.open(self.home / "run" / "server.board", read_only=True).cell(name, Pulse).read()
        assert pulse is not None, f"{name} of {self.name} has shown no pulse yet"
        return pulse.pid

    def ask(self, worker: str, do: str, **args: object) -> Answer:
        socket = self.home / "run" / f"server.{worker}.sock"
        return asyncio.run(ask(socket, Request(do, args)))

    def answers(self, worker: str) -> bool:
        return not self.ask(worker, "metrics").error

    def says(self, words: str) -> bool:
        """Whether its log has these words."""
        return words in self.process.output


def _namespace(isolated: bool) -> Sequence[str]:
    if not isolated:
        return ()
    if os.geteuid() != 0:
        raise Unavailable("a PID namespace needs root")
    return [tool("unshare"), "--pid", "--fork", "--mount-proc", "--kill-child", "--"]


class Controllers:
    """The servers of one region."""

    def __init__(self, cluster: EtcdCluster, region: Region, members: Sequence[Controller]) -> None:
        self.cluster = cluster
        self.region = region
        self.members = members
        self.workers = ("elector", "writer")

    def __getitem__(self, name: str) -> Controller:
        return next(one for one in self.members if one.name == name)

    def seat(self) -> tuple[int, Leader] | None:
        """The term and its leader as the store has them now; None: nobody leads."""
        found = self.read(LEADER.key(self.region, "leader"))
        if found is None:
            return None
        leader = LEADER.decode(b"", base64.b64decode(found["value"]))
        assert not isinstance(leader, Bad)
        return int(found["create_revision"]), leader

    def reigns(self) -> Sequence[LeaderPeriod]:
        """The history of leadership, oldest first."""
        found = self.read(LEADERSHIP.key(self.region, "leadership"))
        history = LEADERSHIP.decode(b"", base64.b64decode(found["value"])) if found else LeaderHistory()
        assert not isinstance(history, Bad)
        return history.periods

    def read(self, key: bytes) -> dict[str, Any] | None:
        """A key as etcd's gateway words it, if it exists."""
        found = ask_any(self.cluster, "/v3/kv/range", {"key": base64.b64encode(key).decode()}).get("kvs")
        return found[0] if found else None

    def wait_all_run(self) -> None:
        """Waits until every worker of every server answers."""
        for server in self.members:
            for worker in self.workers:
                wait_until(partial(server.answers, worker), f"the {worker} of {server.name} answers", within=_PATIENCE)

    def wait_led(self, *, after: int = 0, within: float = _PATIENCE) -> tuple[int, Controller]:
        """Waits until somebody leads under a term above `after`."""
        seats: list[tuple[int, Leader]] = []

        def led() -> bool:
            if not any(one.process.alive for one in self.members):
                raise RuntimeError(f"no server runs: {self.members[0].process.output[-2000:]}")
            seat = self.seat()
            if seat is not None and seat[0] > after:
                seats.append(seat)
            return bool(seats)

        wait_until(led, f"somebody leads after term {after}", within=within)
        term, leader = seats[0]
        return term, self[leader.name]

    def leader(self) -> Controller:
        return self.wait_led()[1]

    def depose(self) -> None:
        """Deletes the leader key, as an operator with etcdctl might."""
        key = LEADER.key(self.region, "leader")
        ask_any(self.cluster, "/v3/kv/deleterange", {"key": base64.b64encode(key).decode()})

    def others(self, *but: Controller) -> Sequence[Controller]:
        return [one for one in self.members if one not in but]


def ask_any(cluster: EtcdCluster, path: str, body: dict[str, object]) -> dict[str, Any]:
    """The answer of the first member that gives one; frozen ones are not asked, they would only cost time."""
    for member in cluster.members:
        if not member.process.alive or frozen(member.process.pid):
            continue
        with contextlib.suppress(OSError, ValueError):
            answer = member.ask(path, body)
            if "header" in answer:
                return answer
    return {}


def frozen(pid: int) -> bool:
    """Whether a process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextlib.contextmanager
def controllers(
    cluster: EtcdCluster,
    names: int | Sequence[str],
    *,
    command: Command,
    settings: Mapping[str, str] = {},
    isolated: bool = False,
    region: Region | None = None,
) -> Iterator[Controllers]:
    """That many servers, or servers of these names, on this etcd. Gone with the block."""
    region = region or Region(f"r{os.getpid()}-{next(_numbers)}")
    chosen = [f"s{number + 1}" for number in range(names)] if isinstance(names, int) else names
    with folder() as home, contextlib.ExitStack() as held:
        members = []
        for number, name in enumerate(chosen):
            place = home / str(number)
            given = {
                "server.name": name,
                "store.region": region.name,
                "store.endpoints": ",".join(cluster.endpoints),
                "paths.state": f"{place}/state",
                "paths.runtime": f"{place}/run",
                **QUICK,
                **settings,
            }
            argv = command([f"{field}={value}" for field, value in given.items()])
            members.append(Controller(name, place, argv, isolated=isolated))
        fleet = Controllers(cluster, region, members)
        for one in members:
            held.callback(_end, one)
            one.start()
        yield fleet


def _end(controller: Controller) -> None:
    if controller.process.alive:
        controller.kill()
