"""The fixtures for real things work as said, and leave nothing behind, also when their run is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing.fixtures import or_skip
from holdfast.testing.real import netns
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.netns import NamespaceNetwork
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import PREFIX, Unavailable, abandoned, folder, owner_tag, running, wait_until

ROOT = Path(__file__).parents[3]


def put(cluster: EtcdCluster, member: int, key: str) -> bool:
    """Return True if a member accepts a write."""
    try:
        return "header" in cluster.members[member].ask("/v3/kv/put", {"key": key, "value": ""})
    except OSError:
        return False


def test_three_members_survive_the_kill_of_their_leader_and_take_it_back(three_etcds: EtcdCluster) -> None:
    first = three_etcds.leader()
    first.kill()
    second = three_etcds.leader()
    assert second is not first
    first.restart()
    assert len(three_etcds.members[0].ask("/v3/cluster/member/list", {})["members"]) == 3
    wait_until(lambda: put(three_etcds, three_etcds.members.index(first), "aw=="), "the one that came back serves")


def test_a_paused_member_answers_nothing_until_it_is_resumed(three_etcds: EtcdCluster) -> None:
    leader = three_etcds.leader()
    index = three_etcds.members.index(leader)
    leader.pause()
    assert not put(three_etcds, index, "aw==")
    others = [i for i in range(3) if i != index]
    wait_until(lambda: any(put(three_etcds, i, "aw==") for i in others), "the others elect a leader")
    leader.resume()
    wait_until(lambda: put(three_etcds, index, "aw=="), "the resumed member serves")


def test_a_killed_etcd_keeps_what_it_acknowledged(three_etcds: EtcdCluster) -> None:
    wait_until(lambda: put(three_etcds, 0, "aw=="), "it is acknowledged")  # a busy machine may cost a leader
    for member in three_etcds.members:
        member.kill()
    for member in three_etcds.members:
        member.start()
    three_etcds.wait_ready()
    answers: list[dict[str, Any]] = []

    def is_read() -> bool:
        with contextlib.suppress(OSError):
            answers.append(three_etcds.members[1].ask("/v3/kv/range", {"key": "aw=="}))
        return bool(answers) and "header" in answers[-1]

    wait_until(is_read, "a member answers")
    assert answers[-1].get("count") == "1"


def test_every_database_is_new(postgres: Postgres) -> None:
    one, other = postgres.create_database(), postgres.create_database()
    assert one != other
    name = one.partition("@/")[2].partition("?")[0]
    postgres.query(name, "CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)")
    assert postgres.query(name, "SELECT n FROM t ORDER BY n").split() == ["1", "2"]


def test_postgres_comes_back_after_a_kill(postgres: Postgres) -> None:
    name = postgres.create_database().partition("@/")[2].partition("?")[0]
    postgres.query(name, "CREATE TABLE t (n int)")
    postgres.kill()
    with pytest.raises(RuntimeError):
        postgres.query(name, "SELECT 1")
    postgres.restart()
    assert postgres.query(name, "SELECT count(*) FROM t") == "0"


def test_postgres_listens_on_no_port(postgres: Postgres) -> None:
    assert postgres.query("postgres", "SHOW listen_addresses") == ""


def test_two_namespaces_reach_each_other_over_their_cable_alone(namespaces: NamespaceNetwork) -> None:
    a, b, c = (namespaces.namespace(name) for name in "abc")
    namespaces.cable(a, b, "10.9.8.1/24", "10.9.8.2/24")
    device = namespaces.cable(b, c, "fd00::1/64", "fd00::2/64")
    neighbour = "import socket,sys; socket.create_connection((sys.argv[1], 7777), 10).recv(1)"
    serve = "import socket; s = socket.create_server(('', 7777)); s.accept()[0].sendall(b'x')"
    server = b.start(sys.executable, "-c", serve)
    wait_until(lambda: ":7777" in b.run("ss", "-ltn"), "the server listens")
    a.run(sys.executable, "-c", neighbour, "10.9.8.2")
    with pytest.raises(RuntimeError):
        c.run(sys.executable, "-c", neighbour, "10.9.8.2")
    assert "fd00::1/64" in b.run("ip", "address", "show", "dev", device)
    server.stop()


def test_namespaces_are_gone_after_their_test() -> None:
    with or_skip(netns.network()) as net:
        system_name = net.namespace("a").system_name
        assert Path("/run/netns", system_name).exists()
    assert not Path("/run/netns", system_name).exists()


def test_a_folder_is_gone_after_its_block() -> None:
    with folder() as path:
        (path / "file").write_text("")
    assert not path.exists()


def test_what_belongs_to_a_living_run_is_not_abandoned() -> None:
    assert not abandoned(f"{owner_tag()}x")
    assert not abandoned("something-else")
    assert abandoned(f"{PREFIX}-{os.getpid()}-1-x"), "the same pid, but another process"


KILLED_RUN = """
import contextlib, sys, time
from holdfast.testing.real.etcd import etcd_cluster
from holdfast.testing.real.netns import network
from holdfast.testing.real.postgres import postgres_cluster
from holdfast.testing.real.processes import Unavailable
with contextlib.ExitStack() as held:
    pids, left = [], []
    with contextlib.suppress(Unavailable):
        member = held.enter_context(etcd_cluster(1)).members[0]
        pids.append(member.process.pid); left.append(member.home.parent)
    with contextlib.suppress(Unavailable):
        server = held.enter_context(postgres_cluster())
        pids.append(server.process.pid); left.append(server.home)
    with contextlib.suppress(Unavailable):
        a = held.enter_context(network()).namespace("a")
        pids.append(a.start("sleep", "1000").pid); left.append("/run/netns/" + a.system_name)
    print(*pids); print(*left, flush=True)
    time.sleep(1000)
"""


def test_a_killed_run_leaves_no_process_and_the_next_run_sweeps_the_rest() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED_RUN], stdout=subprocess.PIPE, text=True, cwd=ROOT) as victim:
        assert victim.stdout is not None
        pids = [int(pid) for pid in victim.stdout.readline().split()]
        left = [Path(path) for path in victim.stdout.readline().split()]
        if not pids:
            victim.kill()
            pytest.skip("neither etcd, PostgreSQL nor root")
        assert all(path.exists() for path in left)
        victim.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(map(running, pids)), "every process ends with its run")
    with folder(), contextlib.suppress(Unavailable), netns.network():
        pass
    assert not [path for path in left if path.exists()]


def test_what_is_missing_becomes_a_skip_with_its_reason() -> None:
    @contextlib.contextmanager
    def moon(phases: int) -> Iterator[int]:
        if phases == 0:
            raise Unavailable("the moon is not installed")
        yield phases

    with pytest.raises(pytest.skip.Exception, match="the moon"), or_skip(moon(0)):
        pass
