"""Addresses, prefixes and MACs: validation, canonical spelling, and order.

Every function takes text and returns its canonical spelling, or raises `AddressRefused` with a sentence. Equal
addresses are therefore equal strings, and encoded objects can be compared as bytes. Text that is canonical already,
which is nearly all text in a running fleet, is recognised without building an `ipaddress` object.

Order is numeric: IPv4 before IPv6, 10.0.0.2 before 10.0.0.10, a short prefix before a longer one at the same address.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address

SHOWN = 40
"""Characters of a refused text that a sentence repeats."""

_LENGTHS = {4: {str(n): n for n in range(33)}, 6: {str(n): n for n in range(129)}}
_BITS = {4: 32, 6: 128}

# A subset of the canonical spellings: without a zero group nothing could be compressed differently, and with at most
# six other groups `::` stands for at least two.
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}"  # written out, like the MAC below: a repeated group is slow
_GROUP = r"[1-9a-f][0-9a-f]{0,3}"
_GROUPS = rf"(?:{_GROUP}(?::{_GROUP}){{0,2}})?"
_IPV6 = rf"(?!::ffff:){_GROUPS}::{_GROUPS}"
_PLAIN_ADDRESS = re.compile(rf"{_IPV4}|{_IPV6}").fullmatch
_PLAIN_PREFIX = re.compile(rf"{_IPV4}/32|{_IPV6}/128").fullmatch

_PLAIN_MAC = re.compile(":".join(["[0-9a-f][0-9a-f]"] * 6)).fullmatch
_ANY_MAC = re.compile(r"[0-9a-fA-F]{2}(?:[:-]?[0-9a-fA-F]{2}){5}|[0-9a-fA-F]{4}(?:\.[0-9a-fA-F]{4}){2}").fullmatch


class AddressRefused(ValueError):
    """The text is not an acceptable address, prefix or MAC. The message is one sentence."""


def shown(text: str) -> str:
    """The text for a message: short, quoted, printable."""
    return ascii(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")


def address(text: str) -> str:
    """Canonicalize an IPv4 or IPv6 address."""
    return text if _PLAIN_ADDRESS(text) else str(_parse(text))


def prefix(text: str, *, strict: bool = True) -> str:
    """Canonicalize a prefix such as `10.28.0.0/26`; an address alone is a host prefix.

    Host bits are refused, because they are mostly a mistake. `strict=False` clears them instead, as Felix does with
    text on the wire.
    """
    if _PLAIN_PREFIX(text):
        return text
    head, slash, tail = text.partition("/")
    if not slash:
        return f"{address(text)}/{_BITS[family(text)]}"
    length = _length(text, head, tail)
    host = _parse(head)
    network = _clear(host, length)
    if strict and network != host:
        raise AddressRefused(f"{shown(text)} has bits set beyond its prefix length; did you mean {network}/{length}?")
    return f"{network}/{length}"


def interface(text: str) -> str:
    """Canonicalize an address with an optional prefix length, such as `192.0.2.7/24`; host bits stay."""
    head, slash, tail = text.partition("/")
    if not slash:
        return address(text)
    return f"{address(head)}/{_length(text, head, tail)}"


def prefixes(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Canonicalize prefixes from the wire in their order; returns the same tuple when nothing changes."""
    if len(texts) == 1 and _PLAIN_PREFIX(texts[0]):  # the usual case, and the hot path of a decoder
        return texts
    return texts if all(map(_PLAIN_PREFIX, texts)) else tuple([prefix(text, strict=False) for text in texts])


def mac(text: str) -> str:
    """Canonicalize a MAC to `fa:16:3e:00:00:01`; accepts hyphens, Cisco's dots and capitals."""
    if _PLAIN_MAC(text):
        return text
    if not _ANY_MAC(text):
        raise AddressRefused(f"{shown(text)} is not a MAC address; write it as fa:16:3e:00:00:01")
    digits = re.sub(r"[^0-9a-f]", "", text.lower())
    return ":".join(digits[i : i + 2] for i in range(0, 12, 2))


def family(text: str) -> int:
    """The family, 4 or 6, of a canonical text."""
    return 6 if ":" in text else 4


def address_order(text: str) -> tuple[int, int]:
    """Sort key of an address: (family, number)."""
    parsed = _parse(text)
    return parsed.version, int(parsed)


def prefix_order(text: str) -> tuple[int, int, int]:
    """Sort key of a prefix, an interface address or an address: (family, number, prefix length)."""
    head, slash, tail = text.partition("/")
    parsed = _parse(head)
    return parsed.version, int(parsed), _length(text, head, tail) if slash else _BITS[parsed.version]


def _parse(text: str) -> IPv4Address | IPv6Address:
    try:
        parsed = ip_address(text)
    except ValueError:
        raise AddressRefused(f"{shown(text)} is not an IP address") from None
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            raise AddressRefused(f"{shown(text)} names an interface; remove the %zone")
        if parsed.ipv4_mapped is not None:
            raise AddressRefused(f"{shown(text)} is IPv4 written as IPv6; write {parsed.ipv4_mapped}")
    return parsed


def _length(text: str, head: str, tail: str) -> int:
    length = _LENGTHS[6 if ":" in head else 4].get(tail)
    if length is None:
        raise AddressRefused(f"{shown(text)} has no valid prefix length after the slash")
    return length


def _clear(host: IPv4Address | IPv6Address, length: int) -> IPv4Address | IPv6Address:
    spare = _BITS[host.version] - length
    return type(host)(int(host) >> spare << spare)
