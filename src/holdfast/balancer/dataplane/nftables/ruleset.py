"""Ruleset of our table, as text for the `nft` tool: the frame, and per VIP a chain and a bucket map. Pure.

    prerouting, output ─► vip maps ─► chain of the VIP ─► bucket by jhash ─► mark by bucket ─► dnat by mark
                                                       └► no backend: reset, or unreachable

Only the first packet of a flow takes this path; connection tracking sends the others to the same backend, whatever
happens to the table (B19). The comment of every rule is a fingerprint of its text, so that a read of the table shows,
also after a restart or an upgrade, whether the rules are the wanted ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from holdfast.balancer.dataplane.nftables.layout import (
    BACKEND_MAPS,
    MARK_MASK,
    MARKS,
    OPENED,
    TRAFFIC,
    VIP_MAPS,
    BackendMap,
    VipMap,
    buckets_of,
    chain_of,
)
from holdfast.balancer.vip import PROTOCOLS, Vip, VipSettings

SEED = 0x5EED
OWNER = "holdfast balancer"
"""Comment of our table. A table without it belongs to another program, whatever its name."""
_ADDRESS = {4: "ip", 6: "ip6"}
_TYPE = {4: "ipv4_addr", 6: "ipv6_addr"}
_REFUSE = "refuse"
_HOOKS = {
    "prerouting": "type nat hook prerouting priority -100",
    "output": "type nat hook output priority -100",
    "counted-in": "type filter hook prerouting priority -90",
    "counted-out": "type filter hook output priority -90",
    "postrouting": "type nat hook postrouting priority 100",
}


@dataclass(frozen=True, slots=True)
class TableShape:
    """Parameters of the text, apart from the VIPs."""

    table: str
    snat: bool = False
    packets: bool = False
    """Count every packet and byte of a flow, instead of the flow at its first packet."""

    @property
    def counted(self) -> str:
        """Name of the set that counts."""
        return TRAFFIC if self.packets else OPENED


OPTIONAL = frozenset({"counted-in", "counted-out"})
"""Chains of the frame that only some shapes have."""
Rules = Mapping[str, Sequence[str]]
"""Rules per chain, in order."""


def frame_rules(shape: TableShape) -> Rules:
    """Rules that always exist. A VIP is looked up by port first, then by protocol, then by address alone."""
    dispatch = [_dispatch(each) for each in VIP_MAPS]
    ours = f"ct mark and {MARK_MASK:#x} == {MARKS:#x}"
    # iif, not iifname: these rules see every packet, and an index compares faster.
    counting = {"counted-in": [f'iif != "lo" ct mark @{TRAFFIC}'], "counted-out": [f"ct mark @{TRAFFIC}"]}
    return {
        # Without a backend the mark is cleared, so that it does not hold the number of a bucket.
        _REFUSE: ["ct mark set 0", "meta l4proto tcp reject with tcp reset", "reject"],
        "prerouting": dispatch,
        "output": dispatch,
        **(counting if shape.packets else {}),
        # A client on this machine may use the VIP as its source; replies to that may reach another balancer.
        "postrouting": [f"{ours} masquerade" if shape.snat else f"{ours} fib saddr type local masquerade"],
    }


def vip_rules(shape: TableShape, vip: Vip, settings: VipSettings) -> Rules:
    """Rules of the chain of one VIP."""
    dnat = f"dnat {_ADDRESS[vip.family]}"
    by_port, by_address = (BackendMap(vip.family, has_port).name for has_port in (True, False))
    rules = [*_hashing(vip, settings), f"ct mark set ct mark map @{buckets_of(vip, settings.table_size)}"]
    if not shape.packets:
        rules.append(f"ct mark @{OPENED}")
    if vip.protocol != PROTOCOLS["any"]:
        rules.append(f"meta l4proto {vip.protocol} {dnat} addr . port to ct mark map @{by_port}")
    return {chain_of(vip): [*rules, f"{dnat} to ct mark map @{by_address}", f"goto {_REFUSE}"]}


def _hashing(vip: Vip, settings: VipSettings) -> list[str]:
    source = f"{_ADDRESS[vip.family]} saddr"
    into = f"mod {settings.table_size} seed {SEED:#x}"
    if settings.sticky:
        return [f"ct mark set jhash {source} {into}"]
    if vip.protocol != PROTOCOLS["any"]:
        return [f"meta l4proto {vip.protocol} ct mark set jhash {source} . th sport {into}"]
    # Packets without ports are spread by address; those with ports then get their own bucket.
    return [
        f"ct mark set jhash {source} {into}",
        f"meta l4proto {{ 6, 17 }} ct mark set jhash {source} . th sport {into}",
    ]


def _dispatch(each: VipMap) -> str:
    parts = [f"{_ADDRESS[each.family]} daddr"]
    parts += ["meta l4proto"] * each.has_protocol + ["th dport"] * each.has_port
    return f"{' . '.join(parts)} vmap @{each.name}"


def fingerprint(rule: str) -> str:
    """Comment of a rule."""
    return hashlib.blake2b(rule.encode(), digest_size=6, person=b"holdfast-rule").hexdigest()


@lru_cache(maxsize=8)
def frame_fingerprints(shape: TableShape) -> Mapping[str, tuple[str, ...]]:
    """Expected fingerprints of the frame's chains; there must be no other chains beside those of VIPs."""
    return fingerprints(frame_rules(shape))


@lru_cache(maxsize=1 << 14)
def vip_fingerprints(shape: TableShape, vip: Vip, settings: VipSettings) -> tuple[str, ...]:
    """Expected fingerprints in the chain of a VIP."""
    return fingerprints(vip_rules(shape, vip, settings))[chain_of(vip)]


def fingerprints(rules: Rules) -> dict[str, tuple[str, ...]]:
    """Expected comments per chain with rules, in order."""
    return {chain: tuple(map(fingerprint, found)) for chain, found in rules.items() if found}


def frame(shape: TableShape) -> str:
    """Create the table, or update the frame of an older one. Maps and their elements stay (protection: B18)."""
    lines = [f'add table inet {shape.table} {{ comment "{OWNER}"; }}']
    for vips in VIP_MAPS:
        parts = [_TYPE[vips.family], *["inet_proto"] * vips.has_protocol, *["inet_service"] * vips.has_port]
        lines.append(f"add map inet {shape.table} {vips.name} {{ type {' . '.join(parts)} : verdict; }}")
    for each in BACKEND_MAPS:
        data = _TYPE[each.family] + " . inet_service" * each.has_port
        lines.append(f"add map inet {shape.table} {each.name} {{ type mark : {data}; }}")
    lines.append(f"add set inet {shape.table} {shape.counted} {{ type mark; counter; }}")
    for chain in frame_rules(shape):
        hook = f" {{ {_HOOKS[chain]}; policy accept; }}" if chain in _HOOKS else ""
        lines.append(f"add chain inet {shape.table} {chain}{hook}")
    return "\n".join([*lines, *_replaced(shape, frame_rules(shape))]) + "\n"


def buckets(shape: TableShape, vips: Iterable[tuple[Vip, int]]) -> str:
    """Create the bucket maps of these VIPs, each with its size."""
    return "".join(
        f"add map inet {shape.table} {buckets_of(vip, size)} {{ type mark : mark; size {size}; }}\n"
        for vip, size in vips
    )


def chains(shape: TableShape, vips: Iterable[tuple[Vip, VipSettings]]) -> str:
    """Create or replace the chains of these VIPs, whose bucket maps exist."""
    lines = []
    for vip, settings in vips:
        lines.append(f"add chain inet {shape.table} {chain_of(vip)}")
        lines += _replaced(shape, vip_rules(shape, vip, settings))
    return "".join(f"{line}\n" for line in lines)


def _replaced(shape: TableShape, rules: Rules) -> list[str]:
    lines = []
    for chain, found in rules.items():
        lines.append(f"flush chain inet {shape.table} {chain}")
        lines += [f'add rule inet {shape.table} {chain} {rule} comment "{fingerprint(rule)}"' for rule in found]
    return lines


def removed(shape: TableShape, chain_names: Iterable[str], map_names: Iterable[str]) -> str:
    """Remove chains that are no longer referenced, then the maps that their rules used."""
    chains = list(chain_names)
    lines = [f"{do} chain inet {shape.table} {chain}" for do in ("flush", "delete") for chain in chains]
    kinds = ((each, "set" if each in (OPENED, TRAFFIC) else "map") for each in map_names)
    lines += [f"delete {kind} inet {shape.table} {each}" for each, kind in kinds]
    return "".join(f"{line}\n" for line in lines)
