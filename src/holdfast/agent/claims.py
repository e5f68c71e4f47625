"""Claims: the objects that a peer occupies in this host's kernel. Keys, shapes, owners, dependencies. Pure.

**A key names one object that the kernel can hold**, never its owner: a forwarding entry is its MAC, a neighbour and a
nexthop are their address, a route is its prefix, local or remote. So when an address, a tunnel address, a MAC or a
prefix moves to another host, that is one REPLACE of one key, and nothing of a live owner is ever deleted on behalf of a
dead one (N8, N9). A shape is what the kernel can show of an object. The owner is known only to the journal and the
store.

Keys sort in the order in which they are applied: dependencies first, IPv4 before IPv6, 10.0.0.2 before 10.0.0.10.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from enum import Enum, IntEnum, unique
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.reconcile import Kinds, Owned

T = TypeVar("T")

AT_A_TIME = 1_000
"""Objects that are handled between two yields, where a host may have a hundred thousand."""


@unique
class ClaimKind(IntEnum):
    """Kinds of kernel objects; each may depend only on kinds of a lower number."""

    RULE = 0
    """`ip rule` of one family that sends traffic to our own table."""
    DEVICE = 1
    """VXLAN device of one underlay family."""
    ADDRESS = 2
    """Address of this host inside the tunnel, on the VXLAN device of its family."""
    FORWARDING = 3
    """FDB entry on the VXLAN device of one underlay family: this MAC is behind that underlay address."""
    NEIGHBOUR = 4
    """Neighbour on a VXLAN device: this tunnel address has that MAC."""
    NEXTHOP = 5
    """Nexthop object: through the tunnel to a tunnel address, or directly to an underlay address."""
    ROUTE = 6
    """Route in our own table."""
    INTERFACE = 7
    """Setup of a workload's interface in one family: it makes this host the gateway of the workload."""
    GUARD = 8
    """nftables table of the guard: its chains and empty sets."""
    SENDER = 9
    """Underlay address from which VXLAN packets with our VNI are accepted."""
    SOURCE = 10
    """Prefix from which a guarded interface may send."""
    GUARDED = 11
    """Interface that may send from its sources only."""

    __hash__ = int.__hash__  # Enum's own is written in Python, and every dict lookup of a key calls it


BITS = {4: 32, 6: 128}
_MAC_BITS = 48
LONGEST_INTERFACE = 15
"""Octets of the longest name of an interface."""


class ClaimKey(NamedTuple):
    """Key of one kernel object. `number` is the address, the MAC, the interface's name or, for a rule, the table, as a
    number; 0 for a tunnel device, of which there is one for each family."""

    kind: ClaimKind
    family: int
    number: int
    length: int

    @property
    def text(self) -> str:
        """Address, MAC or prefix alone."""
        if self.kind is ClaimKind.RULE:
            return f"IPv{self.family} table {self.number}"
        if self.kind is ClaimKind.DEVICE:
            return f"IPv{self.family} tunnel"
        if self.kind is ClaimKind.FORWARDING:
            return _mac(self.number)
        if self.kind is ClaimKind.INTERFACE:
            return f"{_name(self.number)} for IPv{self.family}"
        if self.kind is ClaimKind.GUARD:
            return "table"
        if self.kind is ClaimKind.GUARDED:
            return f"interface {_name(self.number)}"
        if self.kind is ClaimKind.SOURCE:
            return f"{self.prefix.text} on {interface_name(self)}"
        host = str(IPv4Address(self.number) if self.family == 4 else IPv6Address(self.number))
        return f"{host}/{self.length}" if self.kind is ClaimKind.ROUTE else host

    @property
    def prefix(self) -> ClaimKey:
        """Route to the prefix that this key, a route or a source, is about."""
        return self._replace(kind=ClaimKind.ROUTE, number=self.number & (1 << BITS[self.family]) - 1)

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.text}"


_new = tuple.__new__  # a named tuple's own constructor takes three times as long


def rule(family: int, table: int) -> ClaimKey:
    return ClaimKey(ClaimKind.RULE, family, table, 0)


def device(family: int) -> ClaimKey:
    """Key of the VXLAN device on an underlay of that family, whatever its name."""
    return ClaimKey(ClaimKind.DEVICE, family, 0, 0)


@lru_cache(maxsize=16)
def tunnel_address(address: str) -> ClaimKey:
    family, number = _parsed(address)
    return ClaimKey(ClaimKind.ADDRESS, family, number, BITS[family])


def forwarding(family: int, mac: str) -> ClaimKey:
    """`family` is that of the underlay: there is one VXLAN device for each."""
    return _new(ClaimKey, (ClaimKind.FORWARDING, family, int(mac.replace(":", ""), 16), _MAC_BITS))


def neighbour(address: str) -> ClaimKey:
    family, number = _parsed(address)
    return ClaimKey(ClaimKind.NEIGHBOUR, family, number, BITS[family])


@lru_cache(maxsize=1 << 16)
def nexthop(address: str) -> ClaimKey:
    """Key of the nexthop with this gateway: a tunnel address, or the underlay address of a host that is reached
    directly.

    Cached, because every route of a host asks for the same one.
    """
    family, number = _parsed(address)
    return _new(ClaimKey, (ClaimKind.NEXTHOP, family, number, BITS[family]))


def route(prefix: str) -> ClaimKey:
    address, _, length = prefix.partition("/")
    return ClaimKey(ClaimKind.ROUTE, *_parsed(address), int(length))


def interface(family: int, name: str) -> ClaimKey:
    octets = name.encode()
    return ClaimKey(ClaimKind.INTERFACE, family, int.from_bytes(octets, "big"), 8 * len(octets))


def interface_name(key: ClaimKey) -> str:
    """Name of the interface that a key is about."""
    return _name(key.number >> BITS[key.family] if key.kind is ClaimKind.SOURCE else key.number)


GUARD = ClaimKey(ClaimKind.GUARD, 4, 0, 0)


def sender(address: str) -> ClaimKey:
    return neighbour(address)._replace(kind=ClaimKind.SENDER)


def source(name: str, prefix: ClaimKey) -> ClaimKey:
    """Key of the permission to send from the prefix of that route."""
    number = int.from_bytes(name.encode(), "big") << BITS[prefix.family] | prefix.number
    return ClaimKey(ClaimKind.SOURCE, prefix.family, number, prefix.length)


def guarded(name: str) -> ClaimKey:
    return interface(4, name)._replace(kind=ClaimKind.GUARDED)


def _parsed(address: str) -> tuple[int, int]:
    """Family and number of an address that the model has accepted: it refuses every other spelling."""
    if ":" in address:
        return 6, int(IPv6Address(address))
    a, b, c, d = address.split(".")
    return 4, int(a) << 24 | int(b) << 16 | int(c) << 8 | int(d)


class Mode(Enum):
    """Encapsulation of packets for a peer."""

    VXLAN = "vxlan"
    DIRECT = "direct"


class RoutingRule(msgspec.Struct, frozen=True, gc=False, tag="rule"):
    priority: int


class VxlanDevice(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="device"):
    mac: str
    differs: str = ""
    """Difference between the device in the kernel and the configured one, in words; never wanted."""


class TunnelAddress(msgspec.Struct, frozen=True, gc=False, tag="address"):
    length: int
    """Length of its prefix: only that of a single address is wanted."""


class FdbEntry(msgspec.Struct, frozen=True, gc=False, tag="forwarding"):
    to: str
    """Underlay address of the host with this tunnel MAC."""


class NeighbourEntry(msgspec.Struct, frozen=True, gc=False, tag="neighbour"):
    mac: str


class NexthopEntry(msgspec.Struct, frozen=True, gc=False, tag="nexthop"):
    mode: Mode


class RemoteRoute(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="remote"):
    """Route to a prefix behind another host."""

    via: str
    """Gateway of its nexthop."""
    source: str = ""
    """Address of this host that its own packets have as their source; empty if the kernel chooses."""


class LocalRoute(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag="local"):
    """Route to a prefix of a workload on this host."""

    interface: str
    metric: int = 0
    """`ARRIVAL_METRIC` while a routing daemon must not announce it yet."""


ARRIVAL_METRIC = 4096
"""Metric of the routes of workloads that are still on their way here; no filter of a routing daemon exports it."""


class InterfaceSetup(msgspec.Struct, frozen=True, gc=False, tag="interface"):
    """Settings, and in IPv6 the gateway address, of a workload's interface."""


class GuardTable(msgspec.Struct, frozen=True, gc=False, tag="guard"):
    """Chains of the guard, for VXLAN with this VNI on this port."""

    vni: int
    port: int


class GuardElement(msgspec.Struct, frozen=True, gc=False, tag="element"):
    """Element of a set of the guard; its key says all."""


Shape = (
    RoutingRule
    | VxlanDevice
    | TunnelAddress
    | FdbEntry
    | NeighbourEntry
    | NexthopEntry
    | RemoteRoute
    | LocalRoute
    | InterfaceSetup
    | GuardTable
    | GuardElement
)
"""Part of an object that the kernel can show. The type follows from the kind of the key; a route is remote or local."""
BlockedBy = Callable[[ClaimKey, Shape], str | None]
"""Returns why an object cannot be in the kernel now; None if it can."""


class Owner(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Owner of a claim. All fields are empty for an object that is known only from the kernel's tags."""

    host: str = ""
    incarnation: str = ""
    """Tells a host from an earlier one of the same name: the uid of its Node."""
    endpoint: str = ""
    """For a route: the endpoint with that prefix."""

    def __bool__(self) -> bool:
        return bool(self.host)


NO_OWNER = Owner()


class Claim(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Kernel object with its owner: the value that is compared, journalled and handed to every handler."""

    shape: Shape
    owner: Owner = NO_OWNER
    missing: bool = False
    """The journal has it and the kernel does not: create it again, or take it off the journal."""


def depends_on(key: ClaimKey, shape: Shape) -> Sequence[ClaimKey]:
    """Return the objects without which the kernel refuses this one, or sends its packets nowhere; first the one that
    its packets pass next."""
    find = _DEPENDENCIES.get(type(shape))
    return () if find is None else find(key, shape)


def uses(key: ClaimKey, shape: Shape) -> Sequence[ClaimKey]:
    """Return the objects that must not be deleted while this one is present."""
    find = _USES.get(type(shape))
    return () if find is None else find(key, shape)


def uses_of_all(claims: Iterable[tuple[ClaimKey, Owned[Claim]]]) -> Iterator[ClaimKey]:
    """Return what each of these objects uses, all in one."""
    finder_of = _USES.get
    shapes = [(key, owned.value.shape) for key, owned in claims]
    return chain.from_iterable([find(key, shape) for key, shape in shapes if (find := finder_of(type(shape)))])


def _of_route(_key: ClaimKey, shape: Any) -> Sequence[ClaimKey]:
    return (nexthop(shape.via), tunnel_address(shape.source)) if shape.source else (nexthop(shape.via),)


def _of_local_route(key: ClaimKey, shape: Any) -> Sequence[ClaimKey]:
    name = shape.interface
    return interface(key.family, name), source(name, key), guarded(name)


def _of_nexthop(key: ClaimKey, shape: Any) -> Sequence[ClaimKey]:
    return (_new(ClaimKey, (ClaimKind.NEIGHBOUR, *key[1:])),) if shape.mode is Mode.VXLAN else ()


def _of_neighbour(key: ClaimKey, shape: Any) -> Sequence[ClaimKey]:
    return (forwarding(key[1], shape.mac),)


def _on_device(key: ClaimKey, _shape: Any) -> Sequence[ClaimKey]:
    return (_DEVICES[key[1]],)


_DEVICES = {family: device(family) for family in BITS}
_DEPENDENCIES: Mapping[type, Callable[[ClaimKey, Any], Sequence[ClaimKey]]] = {
    RemoteRoute: _of_route,
    NexthopEntry: _of_nexthop,
    NeighbourEntry: _of_neighbour,
    FdbEntry: _on_device,
    TunnelAddress: _on_device,
    GuardElement: lambda _key, _shape: (GUARD,),
}
"""By type of shape: a restart asks for each of a hundred thousand objects."""
_USES = {**_DEPENDENCIES, LocalRoute: _of_local_route}


_NAMES: Mapping[ClaimKind, str] = {kind: kind.name.lower() for kind in ClaimKind}

GUARD_KINDS = frozenset({ClaimKind.GUARD, ClaimKind.SENDER, ClaimKind.SOURCE, ClaimKind.GUARDED})
LOCAL_KINDS = frozenset({ClaimKind.INTERFACE, ClaimKind.SOURCE, ClaimKind.GUARDED})
"""Kinds of objects that go with the routes to an interface of this host: no brake counts them, the routes' does."""

KINDS: Kinds[ClaimKey] = Kinds(of=lambda key: _NAMES[key.kind], order=tuple(_NAMES.values()))


_NUMBER, _LENGTH = itemgetter(ClaimKey._fields.index("number")), itemgetter(ClaimKey._fields.index("length"))


def in_order(keys: Iterable[ClaimKey]) -> Generator[None, None, list[ClaimKey]]:
    """Sort in steps, in a fifth of the time of `sorted`: compares numbers of one kind only, never whole keys."""
    groups: dict[tuple[int, ...], list[ClaimKey]] = {}
    for some in portions(list(keys)):
        for key in some:
            groups.setdefault(key[:2], []).append(key)
        yield
    for group in groups.values():
        group.sort(key=_LENGTH)
        group.sort(key=_NUMBER)
        yield
    return list(chain.from_iterable(groups[place] for place in sorted(groups)))


def portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), AT_A_TIME):
        yield items[start : start + AT_A_TIME]


def _name(number: int) -> str:
    return number.to_bytes((number.bit_length() + 7) // 8, "big").decode(errors="replace")


def _mac(number: int) -> str:
    digits = f"{number:012x}"
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))
