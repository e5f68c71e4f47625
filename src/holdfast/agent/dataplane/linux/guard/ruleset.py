"""Ruleset of the guard, as text for the `nft` tool. Pure.

A guarded interface may send no router advertisement or redirect, but otherwise from its sources; from link-local
addresses to link-local and multicast ones; from no address for neighbour discovery and DHCP; and never VXLAN with our
VNI, which another host would accept if this one masqueraded it. In `input`, VXLAN with our VNI comes from the underlay
addresses of known hosts only. A packet that is too short to show its VNI, such as a first fragment, counts as one with
ours. The chains come before connection tracking, and before those of a balancer. The comment of every rule is a
fingerprint of its text, so that a read of the table shows whether its rules are the wanted ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from holdfast.agent.claims import GuardTable

TABLE = "holdfast_guard"
OWNER = "holdfast agent"
"""Comment of our table. A table without it belongs to another program, whatever its name."""
SETS = {
    "interfaces": "type ifname;",
    "sources4": "type ifname . ipv4_addr;",
    "sources6": "type ifname . ipv6_addr;",
    "networks4": "type ifname . ipv4_addr; flags interval;",
    "networks6": "type ifname . ipv6_addr; flags interval;",
    "senders4": "type ipv4_addr;",
    "senders6": "type ipv6_addr;",
}
"""Sets and their types. Lookups in sets of ranges cost more, so single addresses have sets of their own."""
_HOOKS = {"prerouting": "prerouting", "input": "input"}


def rules(table: GuardTable) -> Mapping[str, Sequence[str]]:
    """Rules per chain, in order."""
    other_vni = f"@th,96,24 != {table.vni} return"
    return {
        "vxlan-out": [other_vni, "counter drop"],
        "vxlan-in": ["ip saddr @senders4 return", "ip6 saddr @senders6 return", other_vni, "counter drop"],
        "workload": [
            "icmpv6 type { nd-router-advert, nd-redirect } counter drop",
            f"udp dport {table.port} jump vxlan-out",
            "iifname . ip saddr @sources4 return",
            "iifname . ip6 saddr @sources6 return",
            "iifname . ip saddr @networks4 return",
            "iifname . ip6 saddr @networks6 return",
            "ip6 saddr fe80::/10 ip6 daddr { fe80::/10, ff00::/8 } return",
            "ip6 saddr :: icmpv6 type { nd-neighbor-solicit, nd-router-solicit } return",
            "ip saddr 0.0.0.0 udp sport 68 udp dport 67 return",
            "counter drop",
        ],
        "prerouting": ["iifname @interfaces jump workload"],
        "input": [f"udp dport {table.port} jump vxlan-in"],
    }


def fingerprints(table: GuardTable) -> dict[str, tuple[str, ...]]:
    """Expected comments of the rules per chain."""
    return {chain: tuple(map(_fingerprint, found)) for chain, found in rules(table).items()}


def frame(table: GuardTable) -> str:
    """Create the table, or replace the rules of an older one. Sets and their elements stay."""
    lines = [f'add table inet {TABLE} {{ comment "{OWNER}"; }}']
    lines += [f"add set inet {TABLE} {name} {{ {kind} }}" for name, kind in SETS.items()]
    for chain in rules(table):
        hook = f" {{ type filter hook {_HOOKS[chain]} priority -350; policy accept; }}" if chain in _HOOKS else ""
        lines.append(f"add chain inet {TABLE} {chain}{hook}")
    for chain, found in rules(table).items():
        lines.append(f"flush chain inet {TABLE} {chain}")
        lines += [f'add rule inet {TABLE} {chain} {rule} comment "{_fingerprint(rule)}"' for rule in found]
    return "\n".join(lines) + "\n"


REMOVAL = f"delete table inet {TABLE}\n"


def _fingerprint(rule: str) -> str:
    return hashlib.blake2b(rule.encode(), digest_size=6, person=b"holdfast-guard").hexdigest()
