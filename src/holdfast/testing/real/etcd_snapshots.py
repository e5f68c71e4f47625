"""Snapshots of a real etcd, as an operator takes and restores them: `etcdctl snapshot save` and `snapshot restore`.

snapshot = save_snapshot(cluster, tmp_path / "snapshot.db")
restore_snapshot(cluster, snapshot)            # same ports, new data folders, new cluster id
restore_snapshot(cluster, snapshot, members=1) # only the first member comes back
wipe(cluster)                                  # same ports, nothing in it
"""

from __future__ import annotations

import base64
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from holdfast.testing.real.etcd import EtcdCluster, EtcdMember, etcd_command
from holdfast.testing.real.processes import Process, Unavailable, reserved_ports, run, tool


def etcdctl() -> str:
    """Return the etcdctl to run. Raises `Unavailable`."""
    return tool("etcdctl", str(Path.cwd() / ".tools/usr/bin/etcdctl"))


def etcdutl_that_bumps() -> str:
    """Return an etcdutl that can restore with higher revisions (3.6, or a late 3.5). Raises `Unavailable`."""
    found = tool("etcdutl", str(Path.cwd() / ".tools/usr/bin/etcdutl"))
    if "--bump-revision" not in run([found, "snapshot", "restore", "--help"]):
        raise Unavailable(f"{found} has no --bump-revision")
    return found


def save_snapshot(cluster: EtcdCluster, file: Path) -> Path:
    """Save a snapshot of the first member that runs. Raises `Unavailable` without etcdctl."""
    member = next(one for one in cluster.members if one.process.alive)
    file.unlink(missing_ok=True)
    _etcdctl(["--endpoints", member.url, "snapshot", "save", str(file)])
    return file


def restore_snapshot(
    cluster: EtcdCluster, snapshot: Path, *, members: int | None = None, bumped_by: int = 0, outgrown_by: int = 0
) -> None:
    """Stop all members, restore the first `members` of them (default: all) from the snapshot, and start those.

    `bumped_by` restores with higher revisions; it needs an etcdutl that can. `outgrown_by` writes that many other
    revisions to the restored data before any client of the cluster can see it, with any etcd: for one member only.
    """
    chosen = cluster.members[: members or len(cluster.members)]
    assert not outgrown_by or len(chosen) == 1, "a store of several members cannot be started in private"
    program = [etcdutl_that_bumps()] if bumped_by else [etcdctl()]
    stop(cluster)
    together = ",".join(f"{one.name}={one.peer_url}" for one in chosen)
    token = secrets.token_hex(4)
    for one in chosen:
        shutil.rmtree(one.home, ignore_errors=True)
        flags = ["--name", one.name, "--data-dir", str(one.home), "--initial-cluster", together]
        flags += ["--initial-cluster-token", token, "--initial-advertise-peer-urls", one.peer_url]
        flags += ["--bump-revision", str(bumped_by), "--mark-compacted"] if bumped_by else []
        _etcdctl(["snapshot", "restore", str(snapshot), *flags], program)
    if outgrown_by:
        _outgrow(chosen[0], outgrown_by)
    start(chosen)


def wipe(cluster: EtcdCluster) -> None:
    """Stop all members, delete their data and start them again, on the same ports."""
    stop(cluster)
    for one in cluster.members:
        shutil.rmtree(one.home, ignore_errors=True)
    start(cluster.members)


def stop(cluster: EtcdCluster) -> None:
    """Kill every member that runs."""
    for one in cluster.members:
        if one.process.alive:
            one.kill()


def start(members: Sequence[EtcdMember]) -> None:
    for one in members:
        one.start()
    for one in members:
        one.wait_ready()


def _outgrow(member: EtcdMember, revisions: int) -> None:
    """Run the restored data on other ports for a moment, and write to it."""
    with reserved_ports(1) as ports:
        private = EtcdMember(member.name, member.home, (ports[0], member.peer_port))
        command = etcd_command(private.name, private.home, private.url, private.peer_url)
        private.process = Process(command, log=member.home.parent / f"{member.name}.private.log")
        private.start()
        private.wait_ready()
        for number in range(revisions):
            key = base64.b64encode(b"/outgrown").decode()
            private.ask("/v3/kv/put", {"key": key, "value": base64.b64encode(b"%d" % number).decode()})
        private.process.stop()


def _etcdctl(words: Sequence[str], program: Sequence[str] = ()) -> None:
    run([tool("env"), "ETCDCTL_API=3", *(program or [etcdctl()]), *words])
