"""Dataplanes: what carries the traffic, behind one small protocol.

A dataplane holds VIPs and, under each, entries: backends with a weight and the word whether their established flows may
live. It outlives the balancer, tells what it holds, and changes exactly what it is told to, in the order it is told. It
knows nothing of health, pools or warm-up. `holdfast.testing.fakes.dataplane` has one in memory, and the conformance
suite (`tests/balancer/conformance.py`) that every other must pass as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import Value, Vip, VipKey
from holdfast.reconcile import Change


@dataclass(frozen=True, slots=True)
class VipDataplaneInfo:
    """What a dataplane is and what it can do."""

    name: str
    table_size: int
    live: frozenset[str] = frozenset()
    """The attributes of a VIP that can change without tearing it down (fields of `vip.Settings`)."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What passed through one entry since it was made."""

    packets: int = 0
    bytes: int = 0
    flows: int = 0
    """Established now."""
    unanswered: int = 0
    """Of these, flows in which no reply has come by: many of them tell of a way back that avoids us."""


class Client(NamedTuple):
    """Where a flow comes from and what it asks for; port 0 where it is not known, or the protocol has none."""

    family: int
    address: int
    port: int
    protocol: int = 0
    to_port: int = 0


@dataclass(frozen=True, slots=True)
class FlowPath:
    """Where a flow goes, and by what."""

    bucket: int
    backend: BackendId | None
    """Who has that bucket: whom a new flow would get. None: it is refused."""
    share: int
    """How many buckets that backend has."""
    established: BackendId | None
    """Who has the flow, if it is established."""


@runtime_checkable
class FlowTracer(Protocol):
    """A dataplane that can tell the course of a flow."""

    async def flow_path(self, vip: Vip, client: Client) -> FlowPath | None:
        """The course of a flow to that VIP; None when it holds no such VIP."""
        ...


class VipDataplane(Protocol):
    """Every method raises `Away` while the dataplane cannot be reached; nothing else may come out."""

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        """What it holds of ours: all of it, or what is under these VIPs. Foreign objects are not ours to see (B18). A
        VIP that is not as it was made is there, too, and said to be damaged: who does not want it can remove it."""
        ...

    async def apply(self, changes: Sequence[Change[VipKey, Value]]) -> Sequence[str | None]:
        """Makes these changes in this order; per change None, or one sentence why not.

        Idempotent. An entry that was made with `kill`, or that was deleted, has no established flow left when its
        answer is None; all other flows stay with their backend (B19). Entries go with their VIP.
        """
        ...

    async def flush(self, vip: Vip, backend: BackendId) -> int:
        """Kills the established flows of one entry; how many there were."""
        ...

    async def counters(self) -> Mapping[VipKey, Counters]: ...

    async def lost(self) -> None:
        """Returns when what was programmed may be gone: a restart, a reconnect. Then everything is compared (B15)."""
        ...

    def describe(self) -> VipDataplaneInfo: ...
