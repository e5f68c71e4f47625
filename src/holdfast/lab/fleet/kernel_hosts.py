"""The first hosts of a lab on the kernel: each a network namespace on one segment, with its workloads behind it.

    segment (a bridge)
      ├── r1-01  192.0.2.1 ── tap-web-01, tap-db-01, tap-cache-01 ── r1-01-w  10.28.1.1, 10.28.1.2, 10.28.1.3
      ├── r1-02  192.0.2.2 ── …
      └── r1-03  192.0.2.3 ── …

Their agents stay outside, where etcd is, and program the kernel of the namespace; the other hosts' kernels are files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.lab.fleet.inventory import WORKLOADS
from holdfast.testing.real.netns import Namespace, NamespaceNetwork
from holdfast.testing.real.processes import run, tool

COUNT = 3
_SEGMENT = "segment"
_GATEWAY = "169.254.1.1"
_FORWARDS = "echo 1 >/proc/sys/net/ipv4/ip_forward"


def name(number: int) -> str:
    return f"r1-{number:02}"


def workload_address(number: int, place: int = 1) -> str:
    return f"10.28.{number}.{place}"


def wire(net: NamespaceNetwork) -> None:
    """Makes the namespaces of the hosts and of their workloads."""
    segment = net.namespace(_SEGMENT)
    segment.batch(["link add bridge0 type bridge", "link set bridge0 up"])
    for number in range(1, COUNT + 1):
        host = net.namespace(name(number))
        host.run("sh", "-c", _FORWARDS)
        _cable(host, "eth0", segment, f"to-{number:02}")
        segment.batch([f"link set to-{number:02} master bridge0", f"link set to-{number:02} up"])
        host.batch([f"address add 192.0.2.{number}/24 dev eth0", "link set eth0 up"])
        _plug(net.namespace(f"{name(number)}-w"), host, number)


def _plug(workloads: Namespace, host: Namespace, number: int) -> None:
    for place, workload in enumerate(WORKLOADS, 1):
        tap, device = f"tap-{workload}-{number:02}", f"eth{place}"
        _cable(host, tap, workloads, device)
        host.batch([f"address add {_GATEWAY}/32 dev {tap}", f"link set {tap} up"])
        own = [f"address add {workload_address(number, place)}/32 dev {device}", f"link set {device} up"]
        workloads.batch(own)
    workloads.batch([f"route add {_GATEWAY} dev eth1", f"route add default via {_GATEWAY}"])


def _cable(one: Namespace, device: str, other: Namespace, end: str) -> None:
    ends = ["netns", one.system_name, "type", "veth", "peer", "name", end, "netns", other.system_name]
    run([tool("ip"), "link", "add", device, *ends])


def namespace(known: Mapping[str, str], of: str) -> Namespace:
    """One of them, in a lab that runs."""
    return Namespace(of, known[of], Path("/"))
