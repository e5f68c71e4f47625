"""Limits of VPP: what a frontend must not ask of it, because it would refuse it, forward wrongly, or crash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.config.schema.field import FieldConflict
from holdfast.config.sections.frontend import Backend, Frontend


def limits(
    frontends: Mapping[str, Frontend], backends: Mapping[str, Backend], table_length: int
) -> Iterator[FieldConflict]:
    """Yield what VPP cannot do."""
    first: dict[str, str] = {}
    for name, frontend in frontends.items():
        yield from _alone(name, frontend, table_length)
        yield from _servers(name, frontend, backends)
        other = first.setdefault(frontend.address, name)
        if other != name:
            yield from _together(name, frontend, other, frontends[other])


def _alone(name: str, frontend: Frontend, table_length: int) -> Iterator[FieldConflict]:
    if not frontend.port and frontend.protocol != "any":
        sentence = "VPP takes every protocol on a frontend of all ports: write protocol: any, or give it a port"
        yield FieldConflict((f"frontends.{name}.protocol", f"frontends.{name}.address"), sentence)
    if frontend.encapsulation == "l3dsr" and ":" in frontend.address:
        sentence = "l3dsr is for IPv4 only: VPP would send GRE instead"
        yield FieldConflict((f"frontends.{name}.encapsulation", "dataplane.kind"), sentence)
    if frontend.dscp and frontend.encapsulation != "l3dsr":
        yield FieldConflict((f"frontends.{name}.dscp",), "is for encapsulation: l3dsr only")
    most = max((len(pool.backends) for pool in frontend.pools), default=0)
    if most > table_length:
        sentence = f"has {most:,} backends in a pool, more than balancer.dataplane.vpp.table_length ({table_length:,})"
        yield FieldConflict((f"frontends.{name}.pools", "dataplane.vpp.table_length"), sentence)


def _servers(name: str, frontend: Frontend, backends: Mapping[str, Backend]) -> Iterator[FieldConflict]:
    addresses: dict[str, str] = {}
    for index, backend_name, _ in frontend.members():
        backend = backends.get(backend_name)
        if backend is None or backend.address is None:
            continue
        place = f"frontends.{name}.pools[{index}].backends.{backend_name}"
        if backend.port not in (0, frontend.port):
            sentence = (
                f"has port {backend.port}, and VPP keeps the port of the frontend ({frontend.port}): write port: 0"
            )
            yield FieldConflict((place, "backends"), sentence)
        elif (other := addresses.setdefault(backend.address, backend_name)) != backend_name:
            sentence = f"has the address of {other}, and VPP does not tell ports apart: remove one"
            yield FieldConflict((place, "backends"), sentence)


def _together(name: str, frontend: Frontend, other: str, first: Frontend) -> Iterator[FieldConflict]:
    if not frontend.port or not first.port:
        sentence = f"has the address of frontend {other}, and VPP gives all ports of an address to one of the two"
        yield FieldConflict((f"frontends.{name}.address", "dataplane.kind"), sentence)
    elif _tunnel(frontend) != _tunnel(first):
        sentence = f"is {_tunnel(frontend)}, and frontend {other} of the same address is {_tunnel(first)}: VPP has one"
        yield FieldConflict((f"frontends.{name}.encapsulation", f"frontends.{name}.address"), sentence)


def _tunnel(frontend: Frontend) -> str:
    if frontend.encapsulation == "l3dsr":
        return f"l3dsr with dscp {frontend.dscp}"
    return "gre"
