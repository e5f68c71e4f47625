"""Generated fleet: hosts and endpoints as they are stored in etcd. The same every time.

An endpoint's value has about 490 bytes, as in the reference measurements, its key about 170; a host's 200 and 60.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.store.api import Put

REGION = Region()
ENDPOINTS = ENDPOINT.prefix(REGION)
HOSTS = HOST.prefix(REGION)
PER_HOST = 40


def endpoints(count: int, *, generation: int = 0) -> Iterator[Put]:
    """Yield the puts that store `count` endpoints; each generation has the same keys and other values."""
    rng = random.Random(count)
    for number in range(count):
        workload, port = _uuid(rng), _uuid(rng)
        spec = EndpointSpec(
            orchestrator="openstack",
            workload=workload,
            node=host_name(number // PER_HOST),
            endpoint=port,
            interface_name=f"tap{port[:11]}",
            mac=f"fa:16:3e:{number >> 16 & 255:02x}:{number >> 8 & 255:02x}:{number & 255:02x}",
            ipv4_gateway=f"10.{generation % 256}.0.1",
            ip_networks=(f"10.{28 + (number >> 16)}.{number >> 8 & 255}.{number & 255}/32",),
        )
        yield Put(ENDPOINT.key(REGION, spec.name), ENDPOINT.encode(Endpoint.of(REGION, spec)))


def host(number: int, *, generation: int = 0) -> Put:
    """Return the put that stores one host; each generation of it has another tunnel address."""
    name = host_name(number)
    octets = f"{number >> 8 & 255}.{number & 255}"
    spec = HostSpec(bgp=Bgp(ipv4_address=f"192.168.{octets}/16"), tunnel_ipv4=f"10.{generation % 256}.{octets}")
    return Put(HOST.key(REGION, name), HOST.encode(Host.of(name, spec)))


def endpoint(number: int, generation: int) -> Put:
    """Return the put that stores the one endpoint of a host; each generation of it has another address."""
    address = f"10.{28 + generation % 64}.{number >> 8 & 255}.{number & 255}/32"
    spec = EndpointSpec(
        orchestrator="openstack",
        workload=f"w{number}",
        node=host_name(number),
        endpoint="eth0",
        interface_name="tap0",
        ip_networks=(address,),
    )
    return Put(ENDPOINT.key(REGION, spec.name), ENDPOINT.encode(Endpoint.of(REGION, spec)))


def host_name(number: int) -> str:
    return f"compute-{number:05}"


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128)))
