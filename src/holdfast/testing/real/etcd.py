"""Real etcd clusters for tests: one member or several, each of which can be killed, paused and started again.

    with etcd_cluster(3) as cluster:
        cluster.leader().pause()

Loopback only, data in memory where possible. A member counts as ready only when it answers with the name that it was
started with: any etcd on that port would answer.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from holdfast.testing.real.processes import Process, folder, reserved_ports, tool, wait_until

_PATIENCE = 60.0


class EtcdMember:
    """One etcd process with its own data folder and ports, the same over restarts."""

    def __init__(self, name: str, home: Path, ports: tuple[int, int]) -> None:
        self.name = name
        self.home = home
        self.port, self.peer_port = ports
        self.process: Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    def start(self) -> None:
        self.process.start()

    def kill(self) -> None:
        self.process.kill()

    def pause(self) -> None:
        self.process.pause()

    def resume(self) -> None:
        self.process.resume()

    def restart(self) -> None:
        """Stop it if it runs, start it again and wait until it serves."""
        self.process.stop()
        self.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until this very member serves linearizable reads."""
        wait_until(self._serves, f"etcd member {self.name} serves", within=_PATIENCE)

    def ask(self, path: str, body: dict[str, object]) -> dict[str, Any]:
        """Make one call of the JSON gateway. Raises `OSError` when the member does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        except http.client.HTTPException as error:
            raise OSError(f"{self.url} does not speak HTTP") from error
        finally:
            connection.close()
        return answer

    def _serves(self) -> bool:
        if not self.process.alive:
            raise RuntimeError(f"etcd member {self.name} ended: {self.process.output[-2000:]}")
        try:
            members = self.ask("/v3/cluster/member/list", {}).get("members", [])
            mine = any(member.get("name") == self.name for member in members)
            return mine and "header" in self.ask("/v3/kv/range", {"key": base64.b64encode(b"\0").decode()})
        except (OSError, ValueError):
            return False


class EtcdCluster:
    """The members of one etcd, all of them started here."""

    def __init__(self, members: Sequence[EtcdMember]) -> None:
        self.members = members

    @property
    def endpoints(self) -> Sequence[str]:
        return [member.url for member in self.members]

    def wait_ready(self) -> None:
        for member in self.members:
            member.wait_ready()

    def leader(self) -> EtcdMember:
        """Wait until exactly one member says that it leads, and return it."""
        found: list[EtcdMember] = []

        def has_one_leader() -> bool:
            found[:] = [member for member in self.members if _leads(member)]
            return len(found) == 1

        wait_until(has_one_leader, "one etcd member leads", within=_PATIENCE)
        return found[0]


def _leads(member: EtcdMember) -> bool:
    if not member.process.alive:
        return False
    try:
        status = member.ask("/v3/maintenance/status", {})
    except (OSError, ValueError):
        return False
    return "leader" in status and status["leader"] == status["header"]["member_id"]


def etcd_binary() -> str:
    """Return the etcd to run: the one that make found, or the one on PATH."""
    return os.environ.get("HOLDFAST_ETCD") or tool("etcd", str(Path.cwd() / ".tools/usr/bin/etcd"))


def etcd_command(
    name: str, data: Path, url: str, peer_url: str, *, cluster: str = "", token: str = "", options: Sequence[str] = ()
) -> Sequence[str]:
    """Return the command line of one member; without `cluster` it is the only one."""
    # Elections among paused and killed members must be quick, but not so quick that a busy machine causes them.
    heartbeat, election = ("50", "500") if "," in cluster else ("10", "100")
    return [
        *(etcd_binary(), "--name", name, "--data-dir", str(data)),
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        *("--initial-cluster", cluster or f"{name}={peer_url}", "--initial-cluster-token", token or name),
        *("--heartbeat-interval", heartbeat, "--election-timeout", election, *options),
    ]


@contextlib.contextmanager
def etcd_cluster(size: int = 1, *, options: Sequence[str] = ()) -> Iterator[EtcdCluster]:
    """Run an etcd of `size` members until the block ends; `options` are further flags for each."""
    etcd_binary()
    with folder() as home, reserved_ports(2 * size) as ports:
        members = _members(home, ports, options)
        try:
            for member in members:
                member.start()
            cluster = EtcdCluster(members)
            cluster.wait_ready()
            yield cluster
        finally:
            for member in members:
                if member.process.alive:
                    member.kill()


@contextlib.contextmanager
def learner_of(cluster: EtcdCluster) -> Iterator[EtcdMember]:
    """Add a member that is no voter yet, and run it until the block ends."""
    with folder() as home, reserved_ports(2) as (port, peer_port):
        member = EtcdMember(home.name, home / "data", (port, peer_port))
        added = cluster.leader().ask("/v3/cluster/member/add", {"peerURLs": [member.peer_url], "isLearner": True})
        peers = [f"{one.get('name') or member.name}={one['peerURLs'][0]}" for one in added["members"]]
        member.process = Process(
            etcd_command(
                *(member.name, member.home, member.url, member.peer_url),
                cluster=",".join(peers),
                options=["--initial-cluster-state", "existing"],
            ),
            log=home / "etcd.log",
        )
        try:
            member.start()
            wait_until(lambda: _refuses_as_learner(member), "the learner refuses clients", within=_PATIENCE)
            yield member
        finally:
            member.kill()


def _refuses_as_learner(member: EtcdMember) -> bool:
    if not member.process.alive:
        raise RuntimeError(f"etcd learner {member.name} ended: {member.process.output[-2000:]}")
    try:
        answer = member.ask("/v3/kv/range", {"key": base64.b64encode(b"\0").decode()})
    except (OSError, ValueError):
        return False
    return "learner" in str(answer)


def _members(home: Path, ports: Sequence[int], options: Sequence[str]) -> Sequence[EtcdMember]:
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    members = [EtcdMember(f"{home.name}-{number}", home / str(number), pair) for number, pair in enumerate(pairs)]
    cluster = ",".join(f"{member.name}={member.peer_url}" for member in members)
    for member in members:
        address = member.url, member.peer_url
        command = etcd_command(member.name, member.home, *address, cluster=cluster, token=home.name, options=options)
        member.process = Process(command, log=home / f"{member.name}.log")
    return members
