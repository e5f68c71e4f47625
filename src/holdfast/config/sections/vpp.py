"""Settings of the VPP dataplane."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Final

from holdfast.config.schema.field import Address, FieldConflict, FieldDoc, Folder, ScalarKind, Section
from holdfast.config.schema.scalars import Unfit, quote

TABLE_LENGTHS: Final = (1024, 2048, 4096, 8192, 16384, 32768)
"""Powers of two; VPP crashes on 0 and shows 65,536 as 0."""


def _power_of_two(given: str) -> int:
    if given not in map(str, TABLE_LENGTHS):
        raise Unfit(f"is {quote(given)}: write one of the powers of two {', '.join(map(str, TABLE_LENGTHS))}")
    return int(given)


STICKY_BUCKETS: Final = frozenset(str(1 << bits) for bits in range(10, 24))
"""Powers of two; VPP crashes on 0 at the first packet."""


def _sticky_buckets(given: str) -> int:
    if given not in STICKY_BUCKETS:
        raise Unfit(f"is {quote(given)}: write a power of two from 1024 to 8388608")
    return int(given)


TableLength = Annotated[int, ScalarKind(f"one of {', '.join(map(str, TABLE_LENGTHS))}", _power_of_two)]
StickyBuckets = Annotated[int, ScalarKind("power of two from 1024 to 8388608", _sticky_buckets)]


class VppSettings(Section, frozen=True, kw_only=True):
    """VPP and its lb plugin, for `kind: vpp`."""

    api_socket: Annotated[Folder, FieldDoc("Socket of VPP's binary API.")] = "/run/vpp/api.sock"
    stats_socket: Annotated[Folder, FieldDoc("Socket of VPP's statistics segment, for counters.")] = (
        "/run/vpp/stats.sock"
    )
    table_length: Annotated[
        TableLength,
        FieldDoc(
            "Buckets of each VIP in VPP. Weights are exact while their sum is not above this; beyond it they are "
            "scaled. A change rebuilds every VIP."
        ),
    ] = 4096
    source_ipv4: Annotated[
        Address | None,
        FieldDoc("Source address of GRE packets to IPv4 backends; `null` keeps what VPP has."),
    ] = None
    source_ipv6: Annotated[
        Address | None,
        FieldDoc("Source address of GRE packets to IPv6 backends; `null` keeps what VPP has."),
    ] = None
    sticky_buckets: Annotated[
        StickyBuckets | None,
        FieldDoc("Flows that VPP remembers per core; `null` keeps what VPP has. A change makes it forget all flows."),
    ] = None
    flow_timeout: Annotated[
        timedelta | None,
        FieldDoc(
            "Time after which VPP forgets a flow without packets; `null` keeps what VPP has.",
            small="a quiet connection moves to another backend when the table changes",
            big="dead flows fill the table of flows",
            least=timedelta(seconds=1),
            most=timedelta(hours=1),
        ),
    ] = None

    def conflicts(self) -> Iterator[FieldConflict]:
        for field, is_six in (("source_ipv4", False), ("source_ipv6", True)):
            address = getattr(self, field)
            if address is not None and (":" in address) != is_six:
                yield FieldConflict((field,), f"is {address}, which is of the other family")
