"""Hosts of a lab on the kernel: each a network namespace on one segment, with its workloads behind it.

    segment (a bridge)
      ├── r1-01  192.0.2.1 ── tap-web-01, tap-db-01, tap-cache-01 ── r1-01-w  10.28.1.1, 10.28.1.2, 10.28.1.3
      ├── r1-02  192.0.2.2 ── …
      └── r1-03  192.0.2.3 ── …

Their agents run outside, where etcd is, and program the kernel of the namespace. Only the first hosts of a lab are like
this; the kernels of the others are files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.lab.fleet.layout import WORKLOADS
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.segment import GATEWAY, HostSegment, route_by_gateway

COUNT = 3
_FIRST_TABLE = 100


def name(number: int) -> str:
    return f"r1-{number:02}"


def workload_address(host: int, index: int = 1) -> str:
    return f"10.28.{host}.{index}"


def create(net: NamespaceNetwork) -> None:
    """Create the namespaces of the hosts and of their workloads, with their addresses."""
    segment = HostSegment(net)
    for number in range(1, COUNT + 1):
        host = segment.attach(name(number), f"192.0.2.{number}/24")
        workloads = net.namespace(f"{name(number)}-w")
        for index, workload in enumerate(WORKLOADS, 1):
            address = f"{workload_address(number, index)}/32"
            segment.plug(host, f"tap-{workload}-{number:02}", workloads, f"eth{index}", address)
            workloads.batch(_sent_by_its_own_interface(workload_address(number, index), index))
        route_by_gateway(workloads, "eth1", 4)


def _sent_by_its_own_interface(address: str, index: int) -> list[str]:
    """Commands by which packets from that address leave by its interface: the guard drops them on another one."""
    return [
        f"route add default via {GATEWAY[4]} dev eth{index} onlink table {_FIRST_TABLE + index}",
        f"rule add from {address} lookup {_FIRST_TABLE + index}",
    ]


def namespace(system_names: Mapping[str, str], name: str) -> Namespace:
    """Return the handle of a namespace in a running lab."""
    return Namespace(name, system_names[name], Path("/"))
