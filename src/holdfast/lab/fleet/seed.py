"""What is in the lab's inventory: hosts with three workloads each, for the servers to sync.

Made once; what an operator, or a scene, changes in it stays changed over restarts of the lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.lab.fleet.inventory import WORKLOADS, database, hosts
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.runtime.daemon.worker import Worker

log = structlog.get_logger(__name__)

REGION = Region()


def underlay(number: int) -> str:
    return f"192.0.2.{number}"


def host(name: str, number: int) -> WantedObject:
    """A host on the underlay address of that number, reached through a tunnel."""
    spec = HostSpec(
        bgp=Bgp(ipv4_address=f"{underlay(number)}/24"),
        tunnel_ipv4=f"10.29.0.{number}",
        tunnel_mac=f"66:00:00:00:00:{number:02x}",
    )
    return wanted(HOST, REGION, name, Host.of(name, spec))


def endpoint(node: str, workload: str, prefix: str) -> WantedObject:
    """A workload on that host. Its interface is named after it."""
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=workload,
        node=node,
        endpoint="eth0",
        interface_name=f"tap-{workload}",
        ip_networks=(prefix,),
    )
    return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec))


def first(names: Sequence[str]) -> Sequence[WantedObject]:
    """What the inventory begins with."""
    wishes = []
    for number, name in enumerate(names, 1):
        wishes.append(host(name, number))
        wishes += [
            endpoint(name, f"{workload}-{number:02}", f"10.28.{number}.{place}/32")
            for place, workload in enumerate(WORKLOADS, 1)
        ]
    return wishes


def gone(one: WantedObject) -> WantedObject:
    """The wish that this object be no more."""
    return WantedObject(one.kind, one.name)


def change(state: Path, wishes: Sequence[WantedObject], why: str) -> None:
    """What `holdfast apply` does."""
    engine = open_engine(database_url(database(state)))
    try:
        Editor(engine, REGION).change(wishes, who="lab", why=why)
    finally:
        engine.dispose()


async def seed(worker: Worker) -> None:
    engine = open_engine(database_url(database(worker.paths.state)))
    try:
        migrate(engine)
        editor = Editor(engine, REGION)
        if not editor.objects(HOST):
            names = hosts(worker.paths.state)
            editor.change(first(names), who="lab", why="the lab's first fleet")
            log.info(f"the inventory begins with {len(names)} hosts, each with {len(WORKLOADS)} workloads")
    finally:
        engine.dispose()
