"""Checks of a balancer's machine: permission to program the dataplane, IP forwarding, the fill of connection tracking,
and the path of replies."""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import click

from holdfast.balancer.dataplane.api import TrackedFlows
from holdfast.balancer.dataplane.nftables.tracking_table import tracked_flows
from holdfast.balancer.dataplane.open import refusal
from holdfast.cli.common.control_socket import send_command
from holdfast.cli.daemons.balancer import WORKER
from holdfast.cli.doctor import Finding, Severity
from holdfast.cli.doctor.vpp import examine_vpp
from holdfast.config.sections.balancer import BalancerSettings

_FORWARDING = {
    4: ("net.ipv4.ip_forward", Path("/proc/sys/net/ipv4/ip_forward")),
    6: ("net.ipv6.conf.all.forwarding", Path("/proc/sys/net/ipv6/conf/all/forwarding")),
}
_MIN_UNANSWERED = 5
"""Unanswered flows below this may just have been opened."""


def examine(config: BalancerSettings, runtime: Path) -> Iterator[Finding]:
    """Check the dataplane, forwarding and replies; yields nothing if no balancer is configured."""
    if not (config.frontends or config.source == "etcd"):
        return
    yield from _serving(runtime)
    if config.dataplane.kind == "vpp":
        yield from examine_vpp(config)
    if config.dataplane.kind != "nftables":
        return
    sentence = refusal(config.dataplane)
    if sentence is not None:
        yield Finding(Severity.WRONG, "dataplane", sentence)
    else:
        yield Finding(Severity.GOOD, "dataplane", f"nftables is available; our table is inet {config.dataplane.table}")
    families = {_family(frontend.address) for frontend in config.frontends.values()}
    try:
        status, traffic = (send_command(runtime, WORKER, command) for command in ("balancer", "traffic"))
    except click.ClickException as error:  # no balancer runs: check what the configuration alone tells
        yield from _forwarding(families, {4, 6} if config.source == "etcd" else set())
        yield from tracking(tracked_flows())
        yield Finding(Severity.NOTE, "replies", f"not checked: {error.message}")
        return
    yield from _forwarding(families | {_family(frontend["vip"]) for frontend in status["frontends"]})
    # Asked of the balancer, which may run in another network namespace than this command.
    tracked = status.get("tracked")
    yield from tracking(TrackedFlows(tracked["flows"], tracked["most"]) if tracked else None)
    yield from replies(traffic)


def _serving(runtime: Path) -> Iterator[Finding]:
    """Find frontends of a running balancer that do not serve, or not with all of their backends."""
    try:
        status = send_command(runtime, WORKER, "balancer")
    except click.ClickException:  # none runs: there is nothing to serve with
        return
    for one in status.get("troubles", ()):
        severity = Severity.WRONG if one["needs_action"] else Severity.NOTE
        yield Finding(severity, "frontends", f"{one['subject']}: {one['sentence']}")


def _family(address: str) -> int:
    """Return the IP version of an address, or of a VIP as it is shown."""
    return 6 if address.count(":") > 1 else 4


def _forwarding(certain: Set[int], possible: Set[int] = frozenset()) -> Iterator[Finding]:
    """Check the families that frontends have, and those that frontends in the store may have."""
    for family in sorted(certain | possible):
        name, path = _FORWARDING[family]
        if path.read_text().strip() != "1":
            sentence = f"{name} is not 1, so IPv{family} works for clients on this machine only: sysctl -w {name}=1"
            yield Finding(Severity.WRONG if family in certain else Severity.NOTE, "forwarding", sentence)
        else:
            yield Finding(Severity.GOOD, "forwarding", f"{name} is 1")


def tracking(tracked: TrackedFlows | None) -> Iterator[Finding]:
    """Check that the kernel's table of connections has room: when it is full, every new flow is dropped."""
    if tracked is None:
        return
    sentence = f"{tracked.flows:,} of {tracked.most:,} connections are tracked"
    if tracked.nearly_full:
        advice = "raise net.netfilter.nf_conntrack_max and nf_conntrack_buckets: a full table drops every new flow"
        yield Finding(Severity.WRONG, "conntrack", f"{sentence}: {advice}")
    else:
        yield Finding(Severity.GOOD, "conntrack", sentence)


def replies(traffic: list[dict[str, Any]]) -> Iterator[Finding]:
    """Find backends whose replies bypass this machine: our own probes still find them healthy."""
    lost = [one for one in traffic if one["unanswered"] >= _MIN_UNANSWERED and 2 * one["unanswered"] > one["flows"]]
    for one in lost:
        sentence = (
            f"{one['backend']} of {one['frontend']}: no reply seen in {one['unanswered']} of {one['flows']} flows; "
            "route its replies to clients through this machine, or set balancer.dataplane.snat: true"
        )
        yield Finding(Severity.WRONG, "replies", sentence)
    if not lost and any(one["flows"] > one["unanswered"] for one in traffic):
        yield Finding(Severity.GOOD, "replies", "replies of backends come back through this machine")
