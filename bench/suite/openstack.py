"""OpenStack: cost of reading Neutron's tables, of a resync into an empty store, and of an audit of what is right.

The shipped reader, translator and syncer on Neutron's tables in SQLite or MariaDB, and an etcd in memory: what is
measured is our own CPU, and a database server has its own. Ports have one address and one of 100 groups with five rules
each. MariaDB needs PyMySQL: `build/openstack/venv/bin/python -m bench openstack --database mariadb`.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from sqlalchemy import URL, Engine, Table, create_engine, insert, make_url, text
from sqlalchemy.exc import OperationalError

from bench.benchmark import Benchmark
from bench.gauges import Stopwatch
from bench.server import etcd_in_memory, scratch
from bench.suite.resync import REGION, begun_term, full_pass
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.openstack import tables as t
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.fakes.neutron import NeutronDatabase
from holdfast.testing.real.neutron import MariaDb
from holdfast.testing.real.processes import reserved_ports, wait_until

GROUPS = 100
NETWORKS = 20
HOSTS = 200
RULES = 5


class Options(msgspec.Struct, frozen=True):
    ports: Annotated[int, msgspec.Meta(ge=100, description="bound ports of workloads")] = 10_000
    database: Annotated[Literal["sqlite", "mariadb"], msgspec.Meta(description="database of Neutron")] = "sqlite"


class Figures(msgspec.Struct, frozen=True):
    resync_cpu_s: float
    resync_s: float
    audit_cpu_s: float
    audit_s: float
    read_s: float
    read_cpu_s: float


def measure(options: Options) -> Figures:
    return asyncio.run(_measure(options))


async def _measure(options: Options) -> Figures:
    with (
        scratch() as folder,
        tempfile.TemporaryDirectory() as state,
        _neutron_database(options.database, Path(folder)) as url,
    ):
        database = NeutronDatabase(open_engine(url))
        seed(database.engine, options.ports)
        inventory = NeutronInventory(database.engine, TranslationSettings(region=REGION))
        read = _read(inventory)
        async with etcd_in_memory() as etcd:
            store = EtcdStore(Connection((etcd.endpoint,)))
            term = await begun_term(store, inventory, Path(state))
            wall, cpu = await full_pass(term)
            audit = await full_pass(term)
            await store.close()
        database.engine.dispose()
    return Figures(cpu, wall, audit[1], audit[0], *read)


@contextlib.contextmanager
def _neutron_database(kind: str, folder: Path) -> Iterator[URL]:
    """An empty database, and its URL."""
    if kind == "sqlite":
        yield database_url(f"sqlite:///{folder}/neutron.db")
        return
    with reserved_ports(1) as (port,):
        server = MariaDb(folder / "db", port)
        server.prepare()
        server.process.start()
        url = make_url(f"mysql+pymysql://neutron@127.0.0.1:{port}/?charset=utf8")
        try:
            wait_until(lambda: _creates(url), "MariaDB answers", within=120)
            yield url.set(database="neutron")
        finally:
            server.process.kill_tree()


def _creates(url: URL) -> bool:
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            connection.execute(text("CREATE DATABASE IF NOT EXISTS neutron CHARACTER SET utf8mb3"))
    except OperationalError:
        return False
    finally:
        engine.dispose()
    return True


def _read(inventory: NeutronInventory) -> tuple[float, float]:
    """Read and translate everything from one snapshot."""
    watch = Stopwatch()
    snapshot = inventory.snapshot()
    after: bytes | None = None
    while rows := snapshot.read(after, 5_000):
        after = rows[-1].key
    snapshot.close()
    return watch.wall_s, watch.cpu_s


def seed(engine: Engine, ports: int) -> None:
    """Fill Neutron's tables."""
    standard = {"resource_type": "ports", "revision_number": 3}
    ids = iter(range(1, ports + GROUPS + 2 * NETWORKS + 1))
    rows: list[tuple[Table, list[dict[str, Any]]]] = [
        (t.NETWORKS, [{"id": f"n{n}", "name": f"net{n}", "standard_attr_id": next(ids)} for n in range(NETWORKS)]),
        (t.SUBNETS, [_subnet(n, next(ids)) for n in range(NETWORKS)]),
        (t.GROUPS, [{"id": _id(2, n), "name": f"g{n}", "standard_attr_id": next(ids)} for n in range(GROUPS)]),
        (t.RULES, [_rule(group, n) for group in range(GROUPS) for n in range(RULES)]),
        (t.PORTS, [_port(n, next(ids)) for n in range(ports)]),
        (t.BINDINGS, [_binding(n) for n in range(ports)]),
        (t.FIXED_IPS, [_address(n) for n in range(ports)]),
        (t.PORT_GROUPS, [{"port_id": _id(1, n), "security_group_id": _id(2, n % GROUPS)} for n in range(ports)]),
    ]
    attributes = [{"id": n, **standard} for n in range(1, ports + GROUPS + 2 * NETWORKS + 1)]
    with engine.begin() as connection:
        for table, values in [(t.STANDARD, attributes), *rows]:
            connection.execute(insert(table), values)
        connection.execute(insert(t.CONTROL.identity).values(only=1, fleet="bench"))


def _id(kind: int, number: int) -> str:
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


def _subnet(number: int, standard: int) -> dict[str, Any]:
    row = {"id": f"s{number}", "network_id": f"n{number}", "cidr": f"10.{number}.0.0/16", "ip_version": 4}
    return {**row, "gateway_ip": f"10.{number}.0.1", "enable_dhcp": True, "standard_attr_id": standard}


def _rule(group: int, number: int) -> dict[str, Any]:
    row = {"id": _id(3, group * RULES + number), "security_group_id": _id(2, group), "direction": "ingress"}
    return {**row, "ethertype": "IPv4", "protocol": "tcp", "port_range_min": number + 1, "port_range_max": number + 80}


def _port(number: int, standard: int) -> dict[str, Any]:
    row = {"id": _id(1, number), "network_id": f"n{number % NETWORKS}", "device_id": _id(4, number), "status": "ACTIVE"}
    mac = f"fa:16:3e:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
    owner = {"device_owner": "compute:nova", "admin_state_up": True, "project_id": "p1"}
    return {**row, **owner, "mac_address": mac, "standard_attr_id": standard}


def _binding(number: int) -> dict[str, Any]:
    row = {"port_id": _id(1, number), "host": f"compute-{number % HOSTS}", "vif_type": "tap", "status": "ACTIVE"}
    return {**row, "profile": "", "vnic_type": "normal"}


def _address(number: int) -> dict[str, Any]:
    network, host = number % NETWORKS, number // NETWORKS + 2
    return {
        "port_id": _id(1, number),
        "ip_address": f"10.{network}.{host >> 8}.{host & 255}",
        "subnet_id": f"s{network}",
    }


BENCHMARK = Benchmark(Options, measure)
