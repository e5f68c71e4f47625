"""Limits of VPP's lb plugin. Pure.

`canonical` changes wanted objects to what VPP can hold, so that they compare equal with what is read back. `refusal_of`
says in one sentence what VPP would forward wrongly or crash on; it runs before anything is sent.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Objects, Value, Vip, VipKey, VipSettings

MAX_TABLE_LENGTH = 32_768
"""Dumps give the length as 16 bits, so 65,536 would read as 0."""
MAX_WEIGHT = 255
NAT = frozenset({"nat4", "nat6"})
"""Encapsulations that are never made, and may be found."""
ALGORITHM = 0
"""VPP builds its own table: no version of ours describes it."""


def canonical(objects: Objects, length: int) -> Objects:
    """Return the objects of one VIP as VPP holds them.

    It has no base table, and a backend keeps the port of its VIP. It honours weights only while their sum fits into the
    table, so they are scaled by the weights of the base, which health does not change: a backend that goes down leaves
    the weights of all others as they are.
    """
    total = total_weight(objects)
    return [(_key(key), _value(value, total, length)) for key, value in objects]


def total_weight(objects: Objects) -> int:
    """Sum of the weights in the base, which neither health nor an operator's lower weight changes (protection: B12)."""
    return sum(value.base for _, value in objects if isinstance(value, BackendEntry))


def _key(key: VipKey) -> VipKey:
    return key if key.backend == NO_BACKEND else VipKey(key.vip, key.backend._replace(port=key.vip.port))


def _value(value: Value, total: int, length: int) -> Value:
    if isinstance(value, VipSettings):
        return replace(value, table_size=length, algorithm=ALGORITHM, encapsulation=value.encapsulation or "gre")
    weight = scaled(value.weight, total, length)
    return BackendEntry(weight, value.kill, weight)


def scaled(weight: int, total: int, length: int) -> int:
    """Return a weight as VPP gets it: unchanged if the sum of all fits, else its share of the table, at least one."""
    if total <= length or not weight:
        return weight
    return min(MAX_WEIGHT, max(1, weight * length // total))


def refusal_of_held(settings: Value | None) -> str | None:
    """Explain why a VIP that VPP holds must be left as it is; None if it may be changed. VPP frees what NAT VIPs of one
    server have in common with the first of them, and aborts when it collects the next."""
    if isinstance(settings, VipSettings) and settings.encapsulation in NAT:  # protection: B9
        return "VPP holds this VIP with NAT, and may abort a minute after that is deleted: restart VPP without it"
    return None


def refusal_of(vip: Vip, settings: VipSettings) -> str | None:
    """Explain why VPP cannot hold a VIP with these settings; None if it can."""
    length = settings.table_size
    if not 1 <= length <= MAX_TABLE_LENGTH or length & (length - 1):
        return f"a table of {length} buckets would crash VPP or be refused: its length is a power of two up to 32768"
    if not vip.port and vip.protocol:
        return "VPP takes every protocol on a VIP of all ports: write protocol any"
    if settings.encapsulation == "l3dsr" and vip.family == 6:
        return "VPP silently turns an IPv6 VIP with L3DSR into GRE: L3DSR is for IPv4 only"
    return None
