"""Addresses of this host, for its report: comparing them with the inventory shows a host that is recorded elsewhere."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from ipaddress import ip_address

from holdfast.config.sections.agent import AgentSettings
from holdfast.netlink.netns import inside
from holdfast.reconcile import Away

LIMIT = 16
"""A host that serves VIPs may have thousands of addresses; a report has room for a few."""


def own_addresses(config: AgentSettings) -> tuple[str, ...]:
    """Addresses of the host whose kernel is programmed; none for a file, or for a namespace that is gone."""
    if config.dataplane.kind != "linux":
        return ()
    netns = config.dataplane.netns
    try:
        return addresses_here() if netns is None else inside(netns, addresses_here)
    except Away:
        return ()


def addresses_here() -> tuple[str, ...]:
    """Addresses of this network namespace that others can send to; none if the kernel does not answer."""
    from holdfast.netlink import ifaddr  # imports NumPy, which an agent on a file does not need
    from holdfast.netlink.socket import DumpInterrupted, Netlink

    try:
        kernel = Netlink(socket.NETLINK_ROUTE)
    except OSError:
        return ()
    try:
        found = [(one.address, one.length) for one in ifaddr.dump(kernel)]
    except (OSError, DumpInterrupted):
        return ()
    finally:
        kernel.close()
    return chosen(found)


def chosen(found: Iterable[tuple[bytes, int]]) -> tuple[str, ...]:
    """Choose those that mean something to other hosts: IPv4 first, wide networks before single addresses."""
    parsed = [(ip_address(address), length) for address, length in found if len(address) in (4, 16)]
    useful = [(one, length) for one, length in parsed if not one.is_loopback and not one.is_link_local]
    useful.sort(key=lambda pair: (pair[0].version, pair[1], int(pair[0])))
    return tuple(f"{one}/{length}" for one, length in useful[:LIMIT])
