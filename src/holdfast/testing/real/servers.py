"""Real servers for tests: each a whole process tree that can be killed, frozen, thawed, stopped and started again.

    with server_group(cluster, 3, command=member.command) as servers:
        servers.leader().freeze()

The servers of one group share a region of their own, so that one etcd serves many groups. `isolated` servers run each
in a PID namespace (needs root): as on another host, other servers cannot tell whether such a process died.
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
"""Turns `SECTION.FIELD=VALUE` settings into a command line."""

QUICK: Mapping[str, str] = {
    "server.ttl": "3s",
    "server.renew_every": "500ms",
    "server.renew_deadline": "2s",
    "server.rpc_timeout": "1s",
}
"""Short timings for tests, yet not so short that a leader on a busy machine loses its lease."""

STARTED_WITHIN = 300.0
"""Seconds that new processes on a busy machine may need until all of them work."""
_PATIENCE = 30.0
_numbers = itertools.count(1)


class ServerProcess:
    """One server: its supervisor and its workers."""

    def __init__(
        self, name: str, home: Path, command: Sequence[str], *, isolated: bool = False, runtime: Path | None = None
    ) -> None:
        self.name = name
        self.home = home
        self.runtime = runtime or home / "run"
        self._isolated = isolated
        self.process = Process([*_namespace(isolated), *command], log=home / "log")

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.process.start()

    def freeze(self) -> None:
        """SIGSTOP the whole tree."""
        self.process.signal_tree(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.signal_tree(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL the whole tree."""
        self.process.signal_tree(signal.SIGKILL)
        self.process.kill()

    def stop(self) -> None:
        """SIGTERM the supervisor and wait until all of it has ended."""
        supervisor = children(self.process.pid)[0] if self._isolated else self.process.pid
        os.kill(supervisor, signal.SIGTERM)
        wait_until(lambda: not self.process.alive, f"{self.name} stops", within=_PATIENCE)

    def worker(self, name: str) -> int:
        """Return the pid of one worker, from the board; only for servers that are not isolated."""
        pulse = Board.open(self.runtime / "server.board", read_only=True).cell(name, Pulse).read()
        assert pulse is not None, f"{name} of {self.name} has shown no pulse yet"
        return pulse.pid

    def state(self, worker: str) -> str:
        """Return the state that a worker shows on the board."""
        pulse = Board.open(self.runtime / "server.board", read_only=True).cell(worker, Pulse).read()
        return "" if pulse is None else pulse.state

    def ask(self, worker: str, do: str, **args: object) -> Answer:
        socket = self.runtime / f"server.{worker}.sock"
        return asyncio.run(ask(socket, Request(do, args)))

    def answers(self, worker: str) -> bool:
        return not self.ask(worker, "metrics").error

    def says(self, words: str) -> bool:
        """Return True if its log has these words."""
        return words in self.process.output


def _namespace(isolated: bool) -> Sequence[str]:
    if not isolated:
        return ()
    if os.geteuid() != 0:
        raise Unavailable("a PID namespace needs root")
    return [tool("unshare"), "--pid", "--fork", "--mount-proc", "--kill-child", "--"]


class ServerGroup:
    """The servers of one region."""

    def __init__(self, cluster: EtcdCluster, region: Region, members: Sequence[ServerProcess]) -> None:
        self.cluster = cluster
        self.region = region
        self.members = members
        self.workers = ("elector", "writer")

    def __getitem__(self, name: str) -> ServerProcess:
        return next(one for one in self.members if one.name == name)

    def current_leader(self) -> tuple[int, Leader] | None:
        """Return the current term and leader from the store; None while there is no leader."""
        found = self.read(LEADER.key(self.region, "leader"))
        if found is None:
            return None
        leader = LEADER.decode(b"", base64.b64decode(found["value"]))
        assert not isinstance(leader, Bad)
        return int(found["create_revision"]), leader

    def leader_history(self) -> Sequence[LeaderPeriod]:
        """Return the history of leadership, oldest first."""
        found = self.read(LEADERSHIP.key(self.region, "leadership"))
        history = LEADERSHIP.decode(b"", base64.b64decode(found["value"])) if found else LeaderHistory()
        assert not isinstance(history, Bad)
        return history.periods

    def read(self, key: bytes) -> dict[str, Any] | None:
        """Return a key in the JSON of etcd's gateway, if it exists."""
        found = ask_any(self.cluster, "/v3/kv/range", {"key": base64.b64encode(key).decode()}).get("kvs")
        return found[0] if found else None

    def wait_all_run(self) -> None:
        """Wait until every worker of every server answers."""
        for server in self.members:
            for worker in self.workers:
                wait_until(
                    partial(server.answers, worker), f"the {worker} of {server.name} answers", within=STARTED_WITHIN
                )

    def wait_led(self, *, after: int = 0, within: float = _PATIENCE) -> tuple[int, ServerProcess]:
        """Wait until a server leads under a term above `after`."""
        leaders: list[tuple[int, Leader]] = []

        def led() -> bool:
            if not any(one.process.alive for one in self.members):
                raise RuntimeError(f"no server runs: {self.members[0].process.output[-2000:]}")
            found = self.current_leader()
            if found is not None and found[0] > after:
                leaders.append(found)
            return bool(leaders)

        wait_until(led, f"a server leads after term {after}", within=within)
        term, leader = leaders[0]
        return term, self[leader.name]

    def leader(self) -> ServerProcess:
        return self.wait_led()[1]

    def depose(self) -> None:
        """Delete the leader key, as an operator with etcdctl might."""
        key = LEADER.key(self.region, "leader")
        ask_any(self.cluster, "/v3/kv/deleterange", {"key": base64.b64encode(key).decode()})

    def others(self, *but: ServerProcess) -> Sequence[ServerProcess]:
        return [one for one in self.members if one not in but]


def ask_any(cluster: EtcdCluster, path: str, body: dict[str, object]) -> dict[str, Any]:
    """Return the answer of the first member that gives one; frozen members are skipped, they would only time out."""
    for member in cluster.members:
        if not member.process.alive or frozen(member.process.pid):
            continue
        with contextlib.suppress(OSError, ValueError):
            answer = member.ask(path, body)
            if "header" in answer:
                return answer
    return {}


def frozen(pid: int) -> bool:
    """Return True if the process is stopped by a signal."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@contextlib.contextmanager
def server_group(
    cluster: EtcdCluster,
    names: int | Sequence[str],
    *,
    command: Command,
    settings: Mapping[str, str] = {},
    isolated: bool = False,
    region: Region | None = None,
) -> Iterator[ServerGroup]:
    """Run that many servers, or servers of these names, on this etcd until the block ends."""
    region = region or Region(f"r{os.getpid()}-{next(_numbers)}")
    chosen = [f"s{number + 1}" for number in range(names)] if isinstance(names, int) else names
    with folder() as home, contextlib.ExitStack() as held:
        members = []
        for number, name in enumerate(chosen):
            place = home / str(number)
            given = {
                "server.name": name,
                **({"store.region": region.name} if region.name else {}),
                "store.endpoints": ",".join(cluster.endpoints),
                "paths.state": f"{place}/state",
                "paths.runtime": f"{place}/run",
                **QUICK,
                **settings,
            }
            argv = command([f"{field}={value}" for field, value in given.items()])
            members.append(ServerProcess(name, place, argv, isolated=isolated))
        fleet = ServerGroup(cluster, region, members)
        for one in members:
            held.callback(_end, one)
            one.start()
        yield fleet


def _end(server: ServerProcess) -> None:
    if server.process.alive:
        server.kill()
