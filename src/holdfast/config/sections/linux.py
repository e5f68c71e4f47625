"""Linux dataplane: numbers and names that mark kernel objects as the agent's own.

The objects outlive the agent. After a change of the table or the protocol number the agent takes over what it left
with the old ones, without losing a packet.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, Name, ScalarKind, Section
from holdfast.config.schema.scalars import Unfit, integer

LONGEST_DEVICE = 14


def _label(least: int, most: int) -> ScalarKind:
    """An identifier: any number that the kernel accepts is as good as another."""

    def read(given: str) -> int:
        number = integer(given)
        if not least <= number <= most:
            raise Unfit(f"is {number}: write a number from {least} to {most}")
        return number

    return ScalarKind(f"number from {least} to {most}", read)


MAIN_TABLE = 254


def _table(given: str) -> int:
    return MAIN_TABLE if given == "main" else _least_table.read(given)  # type: ignore[return-value]


_least_table = _label(1, 4_294_967_295)
Protocol = Annotated[int, _label(5, 255)]
Table = Annotated[
    int,
    ScalarKind(f"{_least_table.noun}, or `main`", _table, lambda table: "main" if table == MAIN_TABLE else str(table)),
]
NexthopNumber = Annotated[int, _label(1, 4_000_000_000)]
Vni = Annotated[int, _label(1, 16_777_215)]
Port = Annotated[int, _label(1, 65_535)]


class LinuxSettings(Section, frozen=True, kw_only=True):
    """Identifiers of the agent's kernel objects."""

    protocol: Annotated[
        Protocol, FieldDoc("Protocol number of the agent's routes, nexthops, neighbours and rules.")
    ] = 175
    table: Annotated[
        Table,
        FieldDoc(
            "Routing table of the agent. No other program may write to it. `main` is for `routing: bgp` with FRR, "
            "which reads no other table: then there is no `ip rule`, and only `protocol` marks the agent's routes."
        ),
    ] = 7500
    priority: Annotated[
        int,
        FieldDoc(
            "Priority of the `ip rule` that refers to the agent's table.",
            small="the agent's routes override rules that should come before them",
            big="after the main table (32766), a default route there overrides all of the agent's routes",
            least=1,
            most=32_765,
        ),
    ] = 20_000
    first_nexthop: Annotated[
        NexthopNumber, FieldDoc("Lowest id of the agent's nexthop objects; ids in use are skipped.")
    ] = 750_000_000
    vni: Annotated[Vni, FieldDoc("VXLAN network identifier; the same on all hosts.")] = 7500
    port: Annotated[Port, FieldDoc("UDP port of VXLAN; the same on all hosts.")] = 4789
    device: Annotated[
        Name,
        FieldDoc("Name of the VXLAN devices, followed by 4 or 6 for the address family of the underlay."),
    ] = "holdfast"
    underlay_mtu: Annotated[
        int | None,
        FieldDoc(
            "MTU of the network between the hosts, in bytes; VXLAN takes 50 (IPv4) or 70 (IPv6) of them. `null` for "
            "that of the device with this host's own address.",
            small="workloads send smaller packets than necessary",
            big="large packets between hosts are fragmented or lost",
            least=1_350,
            most=65_535,
        ),
    ] = None

    def device_name(self, family: int) -> str:
        """Name of the VXLAN device on an underlay of that family."""
        return f"{self.device}{family}"

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.table in (253, 255):
            yield FieldConflict(("table",), "is the kernel's default or local table: choose another number")
        if len(self.device) > LONGEST_DEVICE:
            yield FieldConflict(
                ("device",),
                f"has more than {LONGEST_DEVICE} characters: with the 4 or 6 it would be too long for the kernel",
            )
