"""Checks of a balancer's VPP: that it answers, has the lb plugin, and a source address for its tunnels."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

from holdfast.balancer.dataplane.open import refusal
from holdfast.cli.doctor import Finding, Severity
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.reconcile import Away


def examine_vpp(config: BalancerSettings) -> Iterator[Finding]:
    sentence = refusal(config.dataplane)
    if sentence is not None:
        yield Finding(Severity.WRONG, "dataplane", sentence)
        return
    try:
        conf = asyncio.run(_plugin(config.dataplane.vpp.api_socket))
    except Away as away:
        yield Finding(Severity.WRONG, "dataplane", str(away))
        return
    yield Finding(Severity.GOOD, "dataplane", f"VPP answers on {config.dataplane.vpp.api_socket} and has the lb plugin")
    yield from sources(config, {4: str(conf.ip4_src_address), 6: str(conf.ip6_src_address)})


async def _plugin(path: str) -> Any:
    from holdfast.balancer.dataplane.vpp.connection import VppConnection, VppRequest  # its client is an extra

    connection = VppConnection(path)
    try:
        (conf,) = await connection.query([VppRequest("lb_conf_get")])
    finally:
        await connection.disconnect()
    return conf


def sources(config: BalancerSettings, set_in_vpp: dict[int, str]) -> Iterator[Finding]:
    """Check that GRE packets have a source address, from the configuration or set in VPP by somebody else."""
    tunnelled = [one for one in config.frontends.values() if one.encapsulation != "l3dsr"]
    settings = config.dataplane.vpp
    for family, ours in ((4, settings.source_ipv4), (6, settings.source_ipv6)):
        used = any(ip_address(one.address).version == family for one in tunnelled)
        if used and ours is None and not _is_set(set_in_vpp[family]):
            field = f"balancer.dataplane.vpp.source_ipv{family}"
            sentence = f"GRE packets of IPv{family} frontends have no source address: set {field}"
            yield Finding(Severity.WRONG, "tunnel source", sentence)


def _is_set(address: str) -> bool:
    """VPP shows all ones until an address is set."""
    parsed = ip_address(address)
    return int(parsed) not in (0, (1 << parsed.max_prefixlen) - 1)
