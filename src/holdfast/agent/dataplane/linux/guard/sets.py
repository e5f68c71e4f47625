"""Objects of the guard as elements of its sets, and back. Pure."""

from __future__ import annotations

from holdfast.agent.claims import ClaimKey, ClaimKind, guarded, interface_name, source
from holdfast.netlink.addresses import SIZES
from holdfast.netlink.nftables.elements import Element

_NAME_SIZE = 16


def set_of(key: ClaimKey) -> str:
    """Name of the set that has this object."""
    if key.kind is ClaimKind.GUARDED:
        return "interfaces"
    if key.kind is ClaimKind.SENDER:
        return f"senders{key.family}"
    return f"{'sources' if key.length == _bits(key.family) else 'networks'}{key.family}"


def element_of(key: ClaimKey) -> Element:
    if key.kind is ClaimKind.SENDER:
        return Element(key.number.to_bytes(SIZES[key.family], "big"))
    name = interface_name(key).encode().ljust(_NAME_SIZE, b"\0")
    if key.kind is ClaimKind.GUARDED:
        return Element(name)
    size, bits = SIZES[key.family], _bits(key.family)
    first = key.prefix.number
    last = first | (1 << bits - key.length) - 1
    made = Element(name + first.to_bytes(size, "big"))
    return made if key.length == bits else Element(made.key, end=name + last.to_bytes(size, "big"))


def key_of(name: str, start: bytes, end: bytes) -> ClaimKey | None:
    """Object that an element of the set of that name stands for; None if it is none of ours."""
    if name == "interfaces":
        return _guarded(start)
    family = int(name[-1])
    bits = _bits(family)
    if name.startswith("senders"):
        return ClaimKey(ClaimKind.SENDER, family, int.from_bytes(start, "big"), bits)
    first = int.from_bytes(start[_NAME_SIZE:], "big")
    last = int.from_bytes(end[_NAME_SIZE:], "big") if end else first
    length = bits - (first ^ last).bit_length()
    interface = _text(start)
    if interface is None or (end and end[:_NAME_SIZE] != start[:_NAME_SIZE]):
        return None
    return source(interface, ClaimKey(ClaimKind.ROUTE, family, first, length))


def _guarded(start: bytes) -> ClaimKey | None:
    name = _text(start)
    return None if name is None else guarded(name)


def _text(padded: bytes) -> str | None:
    try:
        return padded[:_NAME_SIZE].rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None


def _bits(family: int) -> int:
    return 8 * SIZES[family]
