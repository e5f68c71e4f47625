"""Real etcd clusters for tests: one member or several, each of which can be killed, paused and started again.

    with etcd_cluster(3) as cluster:
        cluster.leader().pause()

Loopback only, data in memory where possible. A member counts as ready only when it says that it is the one that was
started here: any etcd on that port would answer.
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

from holdfast.testing.real.processes import Process, Unavailable, folder, reserved_ports, tool, wait_until

_PATIENCE = 60.0


class EtcdMember:
    """One etcd process with its own data folder and ports, which it keeps over restarts."""

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
        """Starts it again (after stopping it, if it runs) and waits until it serves."""
        self.process.stop()
        self.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Waits until this very member serves linearizable reads."""
        wait_until(self._serves, f"etcd member {self.name} serves", within=_PATIENCE)

    def ask(self, path: str, body: dict[str, object]) -> dict[str, Any]:
        """One call of the JSON gateway. Raises `OSError` when the member does not answer."""
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
        """The member that leads now, by its own word."""
        found: list[EtcdMember] = []

        def look() -> bool:
            found[:] = [member for member in self.members if _leads(member)]
            return len(found) == 1

        wait_until(look, "one etcd member leads", within=_PATIENCE)
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
    """The etcd to run: the one that make found, or the one on PATH."""
    return os.environ.get("HOLDFAST_ETCD") or tool("etcd", str(Path.cwd() / ".tools/usr/bin/etcd"))


@contextlib.contextmanager
def etcd_cluster(size: int = 1, *, options: Sequence[str] = ()) -> Iterator[EtcdCluster]:
    """A running etcd of `size` members; `options` are further flags for each. Gone with the block."""
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


def _members(home: Path, ports: Sequence[int], options: Sequence[str]) -> Sequence[EtcdMember]:
    pairs = list(zip(ports[::2], ports[1::2], strict=True))
    members = [EtcdMember(f"{home.name}-{number}", home / str(number), pair) for number, pair in enumerate(pairs)]
    everyone = ",".join(f"{member.name}={member.peer_url}" for member in members)
    # Elections among paused and killed members must be quick, but not so quick that a busy machine causes them.
    timing = ("10", "100") if len(members) == 1 else ("50", "500")
    for member in members:
        command = [etcd_binary(), "--name", member.name, "--data-dir", str(member.home)]
        command += ["--listen-client-urls", member.url, "--advertise-client-urls", member.url]
        command += ["--listen-peer-urls", member.peer_url, "--initial-advertise-peer-urls", member.peer_url]
        command += ["--initial-cluster", everyone, "--initial-cluster-token", home.name]
        command += ["--heartbeat-interval", timing[0], "--election-timeout", timing[1], *options]
        member.process = Process(command, log=home / f"{member.name}.log")
    return members


__all__ = ["EtcdCluster", "EtcdMember", "Unavailable", "etcd_binary", "etcd_cluster"]
