"""Certificates that are rotated under a running fleet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.inventory.changes import WantedObject, wanted
from holdfast.model.balancing import BACKEND, FRONTEND
from holdfast.runtime.control import Request, ask
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.daemon import PATIENCE
from holdfast.testing.real.etcd import EtcdCluster, EtcdMember, etcd_command
from holdfast.testing.real.fleet import REGION, RealFleet, real_fleet
from holdfast.testing.real.processes import Process, children, reserved_ports, wait_until
from tests.store.certificates import CLIENT, SERVER, Authority

BOTH = (SERVER, CLIENT)


@contextlib.contextmanager
def tls_cluster(folder: Path) -> Iterator[tuple[EtcdCluster, str]]:
    """One etcd that asks for client certificates at the URL given, and answers the test without."""
    with reserved_ports(3) as (port, peer_port, tls_port):
        member = EtcdMember("rotated", folder / "data", (port, peer_port))
        url = f"https://127.0.0.1:{tls_port}"
        options = ["--listen-client-urls", f"{member.url},{url}", "--client-cert-auth"]
        for flag, file in (("cert", "server.pem"), ("key", "server.key"), ("trusted-ca", "ca.pem")):
            options += [f"--{flag}-file", str(folder / file)]
        command = etcd_command(member.name, member.home, member.url, member.peer_url, options=options)
        member.process = Process(command, log=folder / "etcd.log")
        member.start()
        try:
            member.wait_ready()
            yield EtcdCluster([member]), url
        finally:
            member.kill()


def issue_all(folder: Path) -> Mapping[str, Path]:
    """Write a new CA and the certificates of etcd and of the fleet, over those before."""
    authority = Authority(folder)
    authority.issue("server", BOTH)
    pair = authority.issue("client", [CLIENT])
    pair.key.chmod(0o600)
    return {"store.ca_file": authority.pem, "store.cert_file": pair.cert, "store.key_file": pair.key}


@contextlib.contextmanager
def balancer(fleet: RealFleet) -> Iterator[Process]:
    """A balancer of the fleet that takes its services from etcd."""
    settings = {"balancer.name": "lb", "balancer.source": "etcd", "balancer.dataplane.kind": "dry-run"}
    process = Process(fleet.command("balancer", "lb", settings), log=fleet.home / "lb.log")
    process.start()
    try:
        yield process
    finally:
        process.kill_tree()


def service(number: int) -> Sequence[WantedObject]:
    """A frontend with one backend."""
    name = f"b{number}"
    frontend = Frontend(address=f"192.0.2.{number}", port=80, pools=(Pool(backends={name: PoolMember()}),))
    return [
        wanted(BACKEND, REGION, name, Backend(address=f"198.51.100.{number}", port=80)),
        wanted(FRONTEND, REGION, f"f{number}", frontend),
    ]


def served(fleet: RealFleet) -> Sequence[str]:
    """Return the frontends that the balancer knows; empty while it does not answer."""
    said = asyncio.run(ask(fleet.runtime / "lb" / "balancer.sock", Request("tell", {"do": "balancer"}, "vips")))
    return [] if said.error else sorted(one["name"] for one in said.result["frontends"])


def workers(fleet: RealFleet, balancing: Process) -> Sequence[Sequence[int]]:
    supervisors = [one.process.pid for one in fleet.members] + [one.pid for one in fleet.agents.values()]
    return [[supervisor, *sorted(children(supervisor))] for supervisor in [*supervisors, balancing.pid]]


def test_C54_certificates_are_rotated_under_a_fleet_and_no_process_restarts_or_is_deaf(tmp_path: Path) -> None:
    files = {field: str(path) for field, path in issue_all(tmp_path).items()}
    with or_skip(tls_cluster(tmp_path)) as (cluster, url):
        settings = {"store.endpoints": url, **files}
        database = f"sqlite:///{tmp_path}/inventory.db"
        with (
            real_fleet(cluster, database, servers=1, hosts=1, settings=settings) as fleet,
            balancer(fleet) as balancing,
        ):
            fleet.place({1: 1})
            fleet.change(service(1))
            fleet.wait_settled()
            wait_until(lambda: served(fleet) == ["f1"], "the balancer serves f1", within=PATIENCE)
            before = workers(fleet, balancing)
            issue_all(tmp_path)
            cluster.members[0].restart()
            fleet.place({2: 1, 1: None})
            fleet.change(service(2))
            fleet.wait_settled()
            wait_until(lambda: served(fleet) == ["f1", "f2"], "the balancer serves f2", within=PATIENCE)
            assert workers(fleet, balancing) == before
