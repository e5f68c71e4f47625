"""What a balancer serves: backends, and frontends that spread flows over pools of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Literal

from holdfast.config.schema.field import Address, FieldConflict, FieldDoc, Name
from holdfast.config.sections.stored import StoredSection, Unsigned, set_canonical_address

_WEIGHT = {"small": "a weight is not negative", "big": "a hundred is the whole share", "least": 0, "most": 100}


class Backend(StoredSection, frozen=True, kw_only=True):
    """One server behind frontends."""

    address: Annotated[
        Address | None, FieldDoc("Its address; `null` when `endpoint` or `host` names where it runs.")
    ] = None
    endpoint: Annotated[
        Name | None, FieldDoc("The endpoint of the fleet whose address it has (with `balancer.source: etcd` only).")
    ] = None
    host: Annotated[
        Name | None,
        FieldDoc(
            "The host of the fleet whose address it has, and whose drain applies (with `balancer.source: etcd` only)."
        ),
    ] = None
    port: Annotated[
        Unsigned,
        FieldDoc(
            "Its port; 0 keeps the port that the client used.",
            small="there is no such port",
            big="there is no such port",
            least=0,
            most=65_535,
        ),
    ] = 0
    healthcheck: Annotated[
        tuple[Name, ...],
        FieldDoc("The checks that must pass, by name: one, or a list. Without any it counts as up.", alone=True),
    ] = ()
    enabled: Annotated[bool, FieldDoc("Whether it serves at all; `false` also ends the flows that it has.")] = True
    weight: Annotated[Unsigned, FieldDoc("Its share of new flows where a pool does not say otherwise.", **_WEIGHT)] = (
        100
    )

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
        Unsigned | None, FieldDoc("Its share of new flows here; `null` for the backend's own.", **_WEIGHT)
    ] = None


class Pool(StoredSection, frozen=True, kw_only=True):
    """Backends that serve together."""

    name: Annotated[Name | None, FieldDoc("What people call it.")] = None
    backends: Annotated[Mapping[str, PoolMember], FieldDoc("The backends, by name.")] = {}


class Announce(StoredSection, frozen=True, kw_only=True):
    """Putting the address on a device, for a routing daemon to redistribute."""

    device: Annotated[Name, FieldDoc("The device that gets the address.")] = "lo"
    withdraw_delay: Annotated[
        timedelta,
        FieldDoc(
            "How long the frontend must have been down before the address is taken away.",
            small="a short outage of all backends moves every client to another site",
            big="clients run into a dead frontend for that long",
            least=timedelta(0),
            most=timedelta(hours=1),
        ),
    ] = timedelta(seconds=10)


class Frontend(StoredSection, frozen=True, kw_only=True):
    """One address that clients use."""

    address: Annotated[Address, FieldDoc("The virtual address. All its backends are of the same family.")]
    protocol: Annotated[
        Literal["tcp", "udp", "any"], FieldDoc("Which protocol; `any` takes all, and needs port 0.")
    ] = "tcp"
    port: Annotated[
        Unsigned,
        FieldDoc(
            "Which port; 0 for all.",
            small="there is no such port",
            big="there is no such port",
            least=0,
            most=65_535,
        ),
    ] = 0
    pools: Annotated[tuple[Pool, ...], FieldDoc("Who serves: the first pool that can. The others stand by.")] = ()
    description: Annotated[str | None, FieldDoc("For people.")] = None
    flush_on_down: Annotated[
        bool, FieldDoc("Whether flows of a backend that went down are ended, so that clients come back to another one.")
    ] = True
    src_ip_sticky: Annotated[bool, FieldDoc("Whether all flows of one client address go to one backend.")] = False
    slow_start: Annotated[
        timedelta,
        FieldDoc(
            "How long a backend that came up takes to its full weight, in ten steps; `0s` for at once.",
            small="a cold backend gets its full share at once",
            big="every step moves flows, and the others carry more for that long",
            least=timedelta(0),
            most=timedelta(hours=1),
        ),
    ] = timedelta(0)
    panic_threshold: Annotated[
        Unsigned,
        FieldDoc(
            "Percent of a pool's weight that must be healthy for it to serve. When no pool has that, the first one "
            "serves with all its backends, dead or alive. 0 switches it off.",
            small="a prober that sees nothing empties the frontend",
            big="a few dead backends make all of them count as alive",
            least=0,
            most=100,
        ),
    ] = 0
    announce: Annotated[Announce | None, FieldDoc("Where the address is announced; `null` for nowhere.")] = None

    def __post_init__(self) -> None:
        set_canonical_address(self, "address")

    def members(self) -> Iterator[tuple[int, str, PoolMember]]:
        """Every backend with the number of its pool."""
        for index, pool in enumerate(self.pools):
            for name, member in pool.backends.items():
                yield index, name, member

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.protocol == "any" and self.port:
            yield FieldConflict(("port", "protocol"), "needs a protocol that has ports: write protocol: tcp or udp")
        first: dict[str, int] = {}
        for index, name, _ in self.members():
            if name in first:
                place = f"pools[{index}].backends.{name}"
                yield FieldConflict((place,), f"is in this frontend twice, first in pools[{first[name]}]: remove one")
            first.setdefault(name, index)
