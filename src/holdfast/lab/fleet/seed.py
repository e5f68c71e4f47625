"""Seed of the lab's inventory: hosts with three workloads each, for the servers to sync.

Written once: changes by an operator or a scene survive restarts of the lab.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import structlog

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.lab.fleet.layout import WORKLOADS, database, hosts
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.runtime.daemon.worker import Worker

log = structlog.get_logger(__name__)

REGION = Region()


def underlay(number: int) -> str:
    return f"192.0.2.{number}"


def tunnel(number: int) -> str:
    """Return the address of that host on its own tunnel device, to which every other host has a route."""
    return f"10.29.0.{number}"


def host(name: str, number: int) -> WantedObject:
    """Return a host on the underlay address of that number, reached through a tunnel."""
    spec = HostSpec(
        bgp=Bgp(ipv4_address=f"{underlay(number)}/24"),
        tunnel_ipv4=tunnel(number),
        tunnel_mac=f"66:00:00:00:00:{number:02x}",
    )
    return wanted(HOST, REGION, name, Host.of(name, spec))


def endpoint(node: str, workload: str, prefix: str) -> WantedObject:
    """Return a workload on that host. Its interface is named after it."""
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=workload,
        node=node,
        endpoint="eth0",
        interface_name=f"tap-{workload}",
        ip_networks=(prefix,),
    )
    return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec))


def initial_objects(names: Sequence[str]) -> Sequence[WantedObject]:
    objects = []
    for number, name in enumerate(names, 1):
        objects.append(host(name, number))
        objects += [
            endpoint(name, f"{workload}-{number:02}", f"10.28.{number}.{index}/32")
            for index, workload in enumerate(WORKLOADS, 1)
        ]
    return objects


def deleted(one: WantedObject) -> WantedObject:
    """Return the edit that deletes this object."""
    return WantedObject(one.kind, one.name)


def change(state: Path, objects: Sequence[WantedObject], why: str) -> None:
    """Edit the lab's inventory as `holdfast apply` does."""
    engine = open_engine(database_url(database(state)))
    try:
        Editor(engine, REGION).change(objects, who="lab", why=why)
    finally:
        engine.dispose()


async def seed(worker: Worker) -> None:
    engine = open_engine(database_url(database(worker.paths.state)))
    try:
        migrate(engine)
        editor = Editor(engine, REGION)
        if not editor.objects(HOST):
            names = hosts(worker.paths.state)
            editor.change(initial_objects(names), who="lab", why="initial fleet of the lab")
            log.info("inventory seeded", hosts=len(names), workloads_per_host=len(WORKLOADS))
    finally:
        engine.dispose()
