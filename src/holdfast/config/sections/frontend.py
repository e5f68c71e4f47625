"""Sections of the services: backends, and frontends that spread flows over pools of backends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Final, Literal

from holdfast.config.schema.field import Address, FieldConflict, FieldDoc, Name, ScalarKind
from holdfast.config.schema.scalars import Unfit, quote
from holdfast.config.sections.stored import StoredSection, Unsigned, set_canonical_address

_WEIGHT = {"small": "a weight cannot be negative", "big": "100 is the full share", "least": 0, "most": 100}

DEFAULT_TABLE_SIZE: Final = 16381
TABLE_SIZES = (1021, 4093, DEFAULT_TABLE_SIZE, 65537, 131071)
"""Primes: Maglev's permutation visits every bucket only if the table size is prime."""
_EVEN_FROM = 100
"""Buckets per backend from which the shares of backends of equal weight differ by 1 % at most."""


def _table_size(given: str) -> int:
    if given not in map(str, TABLE_SIZES):
        raise Unfit(f"is {quote(given)}: write one of the primes {', '.join(map(str, TABLE_SIZES))}")
    return int(given)


TableSize = Annotated[
    Literal[1021, 4093, 16381, 65537, 131071],
    ScalarKind(f"one of {', '.join(map(str, TABLE_SIZES))}", _table_size),
]


class Backend(StoredSection, frozen=True, kw_only=True):
    """One server behind frontends."""

    address: Annotated[Address | None, FieldDoc("Address of the backend; `null` when `endpoint` or `host` is set.")] = (
        None
    )
    endpoint: Annotated[
        Name | None,
        FieldDoc("Endpoint of the fleet whose address the backend has (with `balancer.source: etcd` only)."),
    ] = None
    host: Annotated[
        Name | None,
        FieldDoc(
            "Host of the fleet whose address the backend has; draining the host pauses the backend (with "
            "`balancer.source: etcd` only)."
        ),
    ] = None
    port: Annotated[
        Unsigned,
        FieldDoc(
            "Port of the backend; 0 keeps the port that the client used.",
            small="there is no such port",
            big="there is no such port",
            least=0,
            most=65_535,
        ),
    ] = 0
    healthcheck: Annotated[
        tuple[Name, ...],
        FieldDoc(
            "Health checks that must pass, by name: one, or a list. Without any, the backend counts as up.", alone=True
        ),
    ] = ()
    enabled: Annotated[bool, FieldDoc("Whether the backend serves; `false` also ends its established flows.")] = True
    weight: Annotated[Unsigned, FieldDoc("Share of new flows, unless a pool sets another weight.", **_WEIGHT)] = 100

    def __post_init__(self) -> None:
        set_canonical_address(self, "address")

    @property
    def location(self) -> str:
        """The endpoint or host that the backend runs on, for one that has no address of its own."""
        return f"endpoint {self.endpoint}" if self.endpoint is not None else f"host {self.host}"

    def conflicts(self) -> Iterator[FieldConflict]:
        places = [field for field in ("address", "endpoint", "host") if getattr(self, field) is not None]
        if len(places) != 1:
            said = "has neither address nor endpoint nor host" if not places else f"has {' and '.join(places)}"
            yield FieldConflict((places[0] if places else "",), f"{said}: give exactly one of them")


class PoolMember(StoredSection, frozen=True, kw_only=True):
    """One backend in one pool."""

    weight: Annotated[
        Unsigned | None, FieldDoc("Share of new flows in this pool; `null` for the weight of the backend.", **_WEIGHT)
    ] = None


class Pool(StoredSection, frozen=True, kw_only=True):
    """Backends that serve together."""

    name: Annotated[Name | None, FieldDoc("Name of the pool, for people.")] = None
    backends: Annotated[Mapping[str, PoolMember], FieldDoc("Backends of the pool, by name.")] = {}


class Announce(StoredSection, frozen=True, kw_only=True):
    """Announcement of the address: it is put on a device, for a routing daemon to redistribute."""

    device: Annotated[Name, FieldDoc("Device that gets the address.")] = "lo"
    withdraw_delay: Annotated[
        timedelta,
        FieldDoc(
            "Time that the frontend must have been down before its address is withdrawn.",
            small="a short outage of all backends moves every client to another site",
            big="clients reach a frontend that is down for that long",
            least=timedelta(0),
            most=timedelta(hours=1),
        ),
    ] = timedelta(seconds=10)


class Frontend(StoredSection, frozen=True, kw_only=True):
    """One virtual address that clients use."""

    address: Annotated[Address, FieldDoc("The virtual address. All its backends are of the same family.")]
    protocol: Annotated[
        Literal["tcp", "udp", "any"], FieldDoc("Protocol; `any` matches all protocols, and needs port 0.")
    ] = "tcp"
    port: Annotated[
        Unsigned,
        FieldDoc(
            "Port; 0 for all ports.",
            small="there is no such port",
            big="there is no such port",
            least=0,
            most=65_535,
        ),
    ] = 0
    pools: Annotated[
        tuple[Pool, ...],
        FieldDoc("Pools of backends. The first pool with a healthy backend serves; the others are on standby."),
    ] = ()
    description: Annotated[str | None, FieldDoc("Description, for people.")] = None
    flush_on_down: Annotated[
        bool,
        FieldDoc("Whether the flows of a backend that goes down are ended, so that clients reconnect to another one."),
    ] = True
    src_ip_sticky: Annotated[bool, FieldDoc("Whether all flows of one client address go to one backend.")] = False
    slow_start: Annotated[
        timedelta,
        FieldDoc(
            "Time in which a backend that came up gets its full weight, in ten steps; `0s` for at once.",
            small="a cold backend gets its full share at once",
            big="every step moves flows, and the other backends carry more load for that long",
            least=timedelta(0),
            most=timedelta(hours=1),
        ),
    ] = timedelta(0)
    panic_threshold: Annotated[
        Unsigned,
        FieldDoc(
            "Percent of a pool's weight that must be healthy for it to serve. When no pool reaches it, the first pool "
            "serves with all its backends, whatever their health. 0 disables it.",
            small="a prober without connectivity takes all backends out of the frontend",
            big="a few backends that are down make all of them serve",
            least=0,
            most=100,
        ),
    ] = 0
    fail_back_delay: Annotated[
        timedelta,
        FieldDoc(
            "Time for which an earlier pool must be healthy before it takes over again from a later one.",
            small="a flapping pool moves all flows back and forth",
            big="the standby serves for that long after the first pool has recovered",
            least=timedelta(0),
            most=timedelta(days=1),
        ),
    ] = timedelta(0)
    withdraw_after: Annotated[
        timedelta,
        FieldDoc(
            "Time for which the health of the backends could not be verified (the prober is silent, has no route to "
            "any backend, or has no result yet) before an announced address is withdrawn; `0s` for never.",
            small="a restart of the prober, or a short loss of routes, moves every client to another site",
            big="clients reach a balancer that cannot tell whether its backends are alive for that long",
            least=timedelta(0),
            most=timedelta(days=1),
        ),
    ] = timedelta(0)
    table_size: Annotated[
        TableSize,
        FieldDoc(
            "Number of Maglev buckets. With 100 buckets per backend, the shares of backends of equal weight differ by "
            "1 % at most. 16381 buckets take 1 MiB of kernel memory, 65537 take 4.9 MiB. A change of the size moves "
            "all new flows; established ones stay."
        ),
    ] = DEFAULT_TABLE_SIZE
    encapsulation: Annotated[
        Literal["gre", "l3dsr"] | None,
        FieldDoc(
            "vpp: how packets reach backends: `gre`, or `l3dsr`, which marks them with `dscp` (IPv4 only); `null` for "
            "`gre`. A change rebuilds the VIP."
        ),
    ] = None
    dscp: Annotated[
        Unsigned,
        FieldDoc(
            "vpp: mark by which backends know this frontend, for `encapsulation: l3dsr`.",
            small="there is no such mark",
            big="there is no such mark",
            least=0,
            most=63,
        ),
    ] = 0
    announce: Annotated[Announce | None, FieldDoc("Announcement of the address; `null` for none.")] = None

    def __post_init__(self) -> None:
        set_canonical_address(self, "address")

    def members(self) -> Iterator[tuple[int, str, PoolMember]]:
        """Yield every backend with the index of its pool."""
        for index, pool in enumerate(self.pools):
            for name, member in pool.backends.items():
                yield index, name, member

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.protocol == "any" and self.port:
            yield FieldConflict(("port", "protocol"), "needs a protocol with ports: write protocol: tcp or udp")
        first: dict[str, int] = {}
        for index, name, _ in self.members():
            if name in first:
                place = f"pools[{index}].backends.{name}"
                yield FieldConflict((place,), f"is in this frontend twice, first in pools[{first[name]}]: remove one")
            first.setdefault(name, index)
        if self.withdraw_after and self.announce is None:
            yield FieldConflict(("withdraw_after",), "needs announce: without it there is no address to withdraw")
        if self._largest_pool > self.table_size:
            yield FieldConflict(("table_size", ""), f"{self._buckets}, which is too few: write a larger table_size")

    def warnings(self) -> Iterator[FieldConflict]:
        if self._largest_pool <= self.table_size < _EVEN_FROM * self._largest_pool:
            sentence = (
                f"{self._buckets}: below {_EVEN_FROM} for each, their shares are uneven; write a larger table_size"
            )
            yield FieldConflict(("table_size", ""), sentence)

    @property
    def _largest_pool(self) -> int:
        """Number of backends that serve together at most: only one pool serves at a time."""
        return max((len(pool.backends) for pool in self.pools), default=0)

    @property
    def _buckets(self) -> str:
        return f"gives {self.table_size:,} buckets to {self._largest_pool:,} backends of a pool"
