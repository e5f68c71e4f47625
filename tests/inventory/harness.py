"""Hosts, endpoints, migrations and subnets for tests, by number."""

from __future__ import annotations

from sqlalchemy import Engine, text

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.sql.engine import reading
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.calico.subnet import SUBNET, Subnet

REGION = Region()


def host(number: int, *, last: int | None = None) -> WantedObject:
    name = f"r{number}"
    address = f"192.0.2.{number if last is None else last}/24"
    return wanted(HOST, REGION, name, Host.of(name, HostSpec(bgp=Bgp(ipv4_address=address))))


def endpoint(number: int, *, on: str = "r1", gateway: str = "", address: str = "") -> WantedObject:
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=f"w{number}",
        node=on,
        endpoint="eth0",
        ipv4_gateway=gateway,
        ip_networks=(address or f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}/32",),
    )
    return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec))


def endpoint_name(number: int) -> str:
    return f"holdfast-w{number}-eth0"


def endpoint_key(number: int, *, on: str = "r1") -> bytes:
    return ENDPOINT.key(REGION, EndpointName(on, "holdfast", f"w{number}", "eth0"))


def migration(number: int, *, to: str) -> WantedObject:
    target = EndpointName(to, "holdfast", f"w{number}", "eth0")
    return wanted(MIGRATION, REGION, target, Migration.of(REGION, target, to))


def migration_key(number: int, *, to: str) -> bytes:
    return MIGRATION.key(REGION, EndpointName(to, "holdfast", f"w{number}", "eth0"))


def subnet(name: str, cidr: str) -> WantedObject:
    return wanted(SUBNET, REGION, name, Subnet(network_id=name, cidr=cidr))


def is_waiting(engine: Engine) -> bool:
    """Whether somebody waits for a lock of this PostgreSQL."""
    with reading(engine) as connection:
        return bool(connection.execute(text("SELECT count(*) FROM pg_locks WHERE NOT granted")).scalar_one())
