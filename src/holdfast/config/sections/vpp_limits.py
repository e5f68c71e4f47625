"""Limits of VPP: what a frontend must not ask of it, because it would refuse it, forward wrongly, or crash."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_address

from holdfast.config.schema.field import FieldConflict
from holdfast.config.sections.frontend import Backend, Frontend


def limits(
    frontends: Mapping[str, Frontend], backends: Mapping[str, Backend], table_length: int
) -> Iterator[FieldConflict]:
    """Yield what VPP cannot do."""
    for name, frontend in frontends.items():
        yield from alone(name, frontend, table_length)
        yield from _servers(name, frontend, backends)
    for name, other in _beside(frontends):
        yield from _pair(name, frontends[name], other, frontends[other])


def alone(name: str, frontend: Frontend, table_length: int) -> Iterator[FieldConflict]:
    """Yield what VPP cannot do of one frontend, whatever the others are."""
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
        other = addresses.setdefault(backend.address, backend_name)
        sentence = server_refusal(backend.port, frontend.port, None if other == backend_name else other)
        if sentence is not None:
            yield FieldConflict((place, "backends"), sentence)


def server_refusal(port: int, frontend_port: int, other: str | None) -> str | None:
    """Explain why VPP cannot have this server; `other` has its address already."""
    if port not in (0, frontend_port):
        return f"has port {port}, and VPP keeps the port of the frontend ({frontend_port}): write port: 0"
    if other is not None:
        return f"has the address of {other}, and VPP does not tell ports apart: remove one"
    return None


def hashed_alike(frontends: Mapping[str, Frontend], backends: Mapping[str, Backend]) -> Iterator[FieldConflict]:
    """Yield pairs of servers that are one and the same to VPP's hash (B13)."""
    for name, frontend in frontends.items():
        first: dict[str, str] = {}
        for index, backend_name, _ in frontend.members():
            backend = backends.get(backend_name)
            if backend is None or backend.address is None:
                continue
            other = first.setdefault(folded(backend.address), backend_name)
            if backends[other].address != backend.address:
                place = f"frontends.{name}.pools[{index}].backends.{backend_name}"
                sentence = (
                    f"has an address that VPP hashes as that of {other} ({backends[other].address}): when one of the "
                    "two is down, the other gets all of its flows; give one of them another address"
                )
                yield FieldConflict((place, "backends"), sentence)


def folded(address: str) -> str:
    """Return the part of an address that VPP hashes: the exclusive or of its two halves (protection: B13)."""
    whole = int(ip_address(address))
    return f"{whole >> 64 ^ whole & (1 << 64) - 1:x}"


def left_out(frontends: Mapping[str, Frontend]) -> Mapping[str, str]:
    """Frontends that VPP cannot have beside another one, with the reason. A file with such is refused; in the store
    they may be written by several people."""
    pairs = [
        (name, frontends[name], other, frontends[other]) for name, other in _beside(dict(sorted(frontends.items())))
    ]
    return {pair[0]: conflict.sentence for pair in pairs for conflict in _pair(*pair)}


def _beside(frontends: Mapping[str, Frontend]) -> Iterator[tuple[str, str]]:
    """Yield each frontend with the first one of its address."""
    first: dict[str, str] = {}
    for name, frontend in frontends.items():
        other = first.setdefault(frontend.address, name)
        if other != name:
            yield name, other


def _pair(name: str, frontend: Frontend, other: str, first: Frontend) -> Iterator[FieldConflict]:
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
