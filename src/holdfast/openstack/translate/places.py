"""Places of a port: the hosts where the store should have its endpoint now.

A port has up to two: the host that its active binding names, and during a live migration the host in `migrating_to` of
that binding's profile. Inactive bindings do not count: Neutron makes them before a migration and leaves them after one.

A binding with a host counts whatever its type. Neutron binds a port again in two transactions whenever its profile,
its host or its type changes, and between them the port is `unbound` at the host where its workload runs, or is going
to run. A port that is really bound to no host has none in its binding.

networking-calico contradicts itself here. Its hooks give up the endpoint of an unbound port for the moment between the
two transactions; its resync writes it, with an empty host in its name if there is none.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.model.calico.endpoint import EndpointName
from holdfast.openstack.rows import ACTIVE, BindingRow, PortRow

_WORKLOADS = ("compute:", "kuryr:container")
"""Owners of ports that are interfaces of workloads; ports of routers, DHCP and floating addresses have no endpoint."""


class Places(NamedTuple):
    """Where the endpoint of a port is wanted."""

    source: EndpointName | None = None
    target: EndpointName | None = None


NOWHERE = Places()


def is_workload(port: PortRow) -> bool:
    """Tell whether the port is the interface of a workload."""
    return port.device_owner.startswith(_WORKLOADS)


def places(port: PortRow) -> Places:
    """The places of a port; names are not checked yet. An unreadable profile is none, as for Neutron itself."""
    binding = active_binding(port)
    if binding is None or not binding.host or not is_workload(port):
        return NOWHERE
    target = migrating_to(binding.profile)
    source = EndpointName(binding.host, "openstack", port.device_id, port.id)
    if not target or target == binding.host:
        return Places(source)
    return Places(source, source._replace(node=target))


def active_binding(port: PortRow) -> BindingRow | None:
    """The binding that counts."""
    for binding in port.bindings:
        if binding.status == ACTIVE:
            return binding
    return None


def migrating_to(profile: str) -> str:
    """The target of a live migration in a binding profile; empty for none."""
    if "migrating_to" not in profile:
        return ""
    try:
        found = msgspec.json.decode(profile)
    except (ValueError, RecursionError):
        return ""
    host = found.get("migrating_to") if isinstance(found, dict) else None
    return host if isinstance(host, str) else ""
