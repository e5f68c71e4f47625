"""Where this host is: the addresses that it has, for its report.

An inventory that has a host at another address than the host itself shows is found by comparing the two.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address

from holdfast.netlink import ifaddr
from holdfast.netlink.socket import DumpInterrupted, Netlink

MOST = 16
"""A host that serves VIPs may have thousands of addresses; a report has room for a few."""


def own_addresses() -> tuple[str, ...]:
    """The addresses of this network namespace at which others could send; none where the kernel does not tell."""
    try:
        kernel = Netlink(socket.NETLINK_ROUTE)
    except OSError:
        return ()
    try:
        found = [(held.address, held.length) for held in ifaddr.dump(kernel)]
    except (OSError, DumpInterrupted):
        return ()
    finally:
        kernel.close()
    return chosen(found)


def chosen(found: Iterable[tuple[bytes, int]]) -> tuple[str, ...]:
    """Those of them that mean something to others: IPv4 first, wide networks before single addresses."""
    parsed = [(ip_address(address), length) for address, length in found if len(address) in (4, 16)]
    useful = [(one, length) for one, length in parsed if not one.is_loopback and not one.is_link_local]
    useful.sort(key=lambda pair: (pair[0].version, pair[1], int(pair[0])))
    return tuple(f"{one}/{length}" for one, length in useful[:MOST])
