"""The agent's marks in the kernel of Linux: the numbers and names by which its objects are known as its own.

They outlive the agent. Under another protocol number the objects of today are somebody else's tomorrow, and stay:
change these settings on a host without peers, or remove what the old ones name by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, Name, ScalarKind, Section
from holdfast.config.schema.scalars import Unfit, integer

LONGEST_DEVICE = 14


def _label(least: int, most: int) -> ScalarKind:
    """A number that only tells things apart: none is too small or too big, if the kernel can take it."""

    def read(given: str) -> int:
        number = integer(given)
        if not least <= number <= most:
            raise Unfit(f"is {number}: write a number from {least} to {most}")
        return number

    return ScalarKind(f"number from {least} to {most}", read)


Protocol = Annotated[int, _label(5, 255)]
Table = Annotated[int, _label(1, 4_294_967_295)]
NexthopNumber = Annotated[int, _label(1, 4_000_000_000)]
Vni = Annotated[int, _label(1, 16_777_215)]
Port = Annotated[int, _label(1, 65_535)]


class LinuxSettings(Section, frozen=True, kw_only=True):
    """The agent's marks in the kernel."""

    protocol: Annotated[Protocol, FieldDoc("The protocol number of our routes, nexthops, neighbours and rules.")] = 175
    table: Annotated[Table, FieldDoc("The routing table for our routes. Nobody else should write to it.")] = 7500
    priority: Annotated[
        int,
        FieldDoc(
            "The priority of the `ip rule` that leads to our table.",
            small="our routes win over rules that were meant to come before them",
            big="behind the main table (32766), a default route there wins over all of ours",
            least=1,
            most=32_765,
        ),
    ] = 20_000
    first_nexthop: Annotated[
        NexthopNumber, FieldDoc("The number of our first nexthop object; numbers in use are left out.")
    ] = 750_000_000
    vni: Annotated[Vni, FieldDoc("The VXLAN network identifier, the same on all hosts.")] = 7500
    port: Annotated[Port, FieldDoc("The UDP port of VXLAN, the same on all hosts.")] = 4789
    device: Annotated[
        Name,
        FieldDoc("Our VXLAN devices are called this, with 4 or 6 behind it for the family of the underlay."),
    ] = "holdfast"
    underlay_mtu: Annotated[
        int,
        FieldDoc(
            "The largest packet that the network between the hosts carries; VXLAN takes 50 or 70 bytes of it.",
            small="workloads send smaller packets than they could",
            big="large packets between hosts are fragmented or lost",
            least=1_350,
            most=65_535,
        ),
    ] = 1500

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.table in (253, 254, 255):
            yield FieldConflict(("table",), "is the kernel's default, main or local table: choose one of our own")
        if len(self.device) > LONGEST_DEVICE:
            yield FieldConflict(
                ("device",), f"has more than {LONGEST_DEVICE} characters: with the family it would not fit"
            )
