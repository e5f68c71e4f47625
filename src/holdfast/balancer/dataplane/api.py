"""Protocol of dataplanes, which carry the traffic.

A dataplane holds VIPs and, under each, entries: backends with a weight, and whether their established flows are killed.
It outlives the balancer, returns what it holds, and makes exactly the requested changes, in their order. It knows
nothing of health, pools or warm-up. A ring dataplane takes our table of buckets; a weight dataplane takes weights,
spreads flows by them in its own way, and predicts what a change moves. What is wanted is compared in the form that the
dataplane can hold (`canonical`), so that it never differs from what was written. `holdfast.testing.fakes` has one of
each in memory; the conformance suite (`tests/balancer/dataplane/conformance.py`) applies to every dataplane.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from holdfast.balancer.maglev.churn import Churn
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import Objects, Value, Vip, VipKey
from holdfast.reconcile import Change

NEARLY_FULL = 0.8
"""Share of the table of connections above which `holdfast doctor` and the alert ask for a larger one."""


@dataclass(frozen=True, slots=True)
class VipDataplaneInfo:
    """Name and capabilities of a dataplane."""

    name: str
    live: frozenset[str] = frozenset()
    """Attributes of a VIP that can change without a rebuild (fields of `VipSettings`)."""
    atomic: bool = True
    """The changes of a VIP in one batch take effect together. Where not, the order of the batch is chosen so that a VIP
    never has fewer backends than before and after it."""
    takes_table: bool = True
    """A ring dataplane: it takes our table of buckets, and knows base weights."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Traffic of one entry since it was created."""

    opened: int = 0
    """Flows, counted at their first packets; 0 where the dataplane counts packets instead."""
    packets: int = 0
    bytes: int = 0
    """Packets and bytes; 0 where the dataplane counts flows instead."""
    flows: int = 0
    """Currently established flows."""
    unanswered: int = 0
    """Flows among these without a reply through the balancer; many of them mean that replies take another path."""


class TrackedFlows(NamedTuple):
    """Connections that the kernel tracks, of all programs, and how many it can track."""

    flows: int
    most: int

    @property
    def nearly_full(self) -> bool:
        return self.flows > NEARLY_FULL * self.most


@runtime_checkable
class TracksFlows(Protocol):
    """A dataplane whose flows need a place in a table of the kernel."""

    def tracked(self) -> TrackedFlows | None: ...


class Client(NamedTuple):
    """Source, protocol and destination port of a flow; port 0 where it is unknown, or the protocol has none."""

    family: int
    address: int
    port: int
    protocol: int = 0
    to_port: int = 0


@dataclass(frozen=True, slots=True)
class FlowPath:
    """Path of a flow through the table."""

    bucket: int
    buckets: int
    """Number of buckets of the VIP."""
    backend: BackendId | None
    """Backend of the bucket, which gets new flows. None: new flows are refused."""
    share: int
    """Number of buckets of that backend."""
    established: BackendId | None
    """Backend of the flow, if it is established."""


@runtime_checkable
class FlowTracer(Protocol):
    """A dataplane that can trace a flow."""

    async def flow_path(self, vip: Vip, client: Client) -> FlowPath | None:
        """Trace a flow to the VIP; None when the dataplane does not hold the VIP."""
        ...


@runtime_checkable
class SharesBuckets(Protocol):
    """A dataplane that makes its own table. It cannot trace a flow, and tells how the buckets are shared."""

    async def shares(self, vip: Vip) -> Mapping[BackendId, int]:
        """Return the number of buckets of each backend of the VIP. Raises `Away`."""
        ...


@runtime_checkable
class Disconnects(Protocol):
    """A dataplane that has to be told when this process ends."""

    async def disconnect(self) -> None: ...


@runtime_checkable
class ChurnPredictor(Protocol):
    """A dataplane that spreads flows in its own way, and knows what a change moves."""

    def churn(self, before: Mapping[VipKey, Value], after: Mapping[VipKey, Value]) -> Churn:
        """Predict the buckets that move between these contents of one VIP. Called from another thread."""
        ...


class VipDataplane(Protocol):
    """`read`, `apply` and `counters` raise `Away` while the dataplane is unreachable, and no other exception."""

    def canonical(self, vip: Vip, objects: Objects) -> Objects:
        """Turn the wanted objects of a VIP into what this dataplane can hold (see `vip.Canonical`). Pure."""
        ...

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        """Read our objects: all of them, or those of these VIPs. Foreign objects are not returned (B18). A VIP that
        differs from what was written is returned as damaged, so that it can be repaired or removed. A field that the
        dataplane can set and not read is returned as it was remembered (`remembered`), without memory as None, which
        equals whatever is wanted."""
        ...

    async def apply(self, changes: Sequence[Change[VipKey, Value]]) -> Sequence[str | None]:
        """Make these changes in this order. Returns per change None, or one sentence why it failed.

        Idempotent. An entry that was created with `kill`, or that was deleted, has no established flow left when its
        result is None; all other flows stay with their backend (B19). Deleting a VIP deletes its entries.
        """
        ...

    async def counters(self) -> Mapping[VipKey, Counters]: ...

    async def lost(self) -> str:
        """Return when what was programmed may be lost, and say why. Then everything is compared (B15)."""
        ...

    def describe(self) -> VipDataplaneInfo: ...
