"""What `holdfast doctor` says of a balancer's machine: whether it may program, forwards, and sees replies come back."""

from __future__ import annotations

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

import click

from holdfast.balancer.dataplane.open import refusal
from holdfast.cli.common.control_socket import tell
from holdfast.cli.daemons.balancer import WORKER
from holdfast.cli.doctor.finding import Finding, Severity
from holdfast.config.sections.balancer import BalancerSettings

_FORWARDING = {
    4: ("net.ipv4.ip_forward", Path("/proc/sys/net/ipv4/ip_forward")),
    6: ("net.ipv6.conf.all.forwarding", Path("/proc/sys/net/ipv6/conf/all/forwarding")),
}
_ENOUGH = 5
"""Flows without a reply that are no accident: below, some may just have begun."""


def examine(config: BalancerSettings, runtime: Path) -> Iterator[Finding]:
    """Nothing, where no balancer is configured."""
    if config.dataplane.kind != "nftables" or not (config.frontends or config.source == "etcd"):
        return
    sentence = refusal(config.dataplane)
    if sentence is not None:
        yield Finding(Severity.WRONG, "dataplane", sentence)
    else:
        yield Finding(Severity.GOOD, "dataplane", f"nftables can be used; our table is inet {config.dataplane.table}")
    families = {_family(frontend.address) for frontend in config.frontends.values()}
    try:
        status, traffic = (tell(runtime, WORKER, question) for question in ("balancer", "traffic"))
    except click.ClickException as error:  # nobody runs, or not yet: also then there is something to say
        yield from _forwarding(families, {4, 6} if config.source == "etcd" else set())
        yield Finding(Severity.NOTE, "replies", f"whether they come back is not known: {error.message}")
        return
    yield from _forwarding(families | {_family(frontend["vip"]) for frontend in status["frontends"]})
    yield from replies(traffic)


def _family(address: str) -> int:
    """Of an address, or of a VIP as it is shown."""
    return 6 if address.count(":") > 1 else 4


def _forwarding(certain: Set[int], possible: Set[int] = frozenset()) -> Iterator[Finding]:
    """Of the families that frontends have, and of those that they may have by what is only known to the store."""
    for family in sorted(certain | possible):
        name, path = _FORWARDING[family]
        if path.read_text().strip() != "1":
            said = f"{name} is not 1, so only clients on this machine are served by IPv{family}: sysctl -w {name}=1"
            yield Finding(Severity.WRONG if family in certain else Severity.NOTE, "forwarding", said)
        else:
            yield Finding(Severity.GOOD, "forwarding", f"{name} is 1")


def replies(traffic: list[dict[str, Any]]) -> Iterator[Finding]:
    """A backend can be healthy by our own probes while its replies to clients take another way."""
    lost = [one for one in traffic if one["unanswered"] >= _ENOUGH and 2 * one["unanswered"] > one["flows"]]
    for one in lost:
        said = (
            f"{one['backend']} of {one['frontend']}: no reply came by in {one['unanswered']} of {one['flows']} flows; "
            "route its replies to clients through this machine, or set balancer.dataplane.snat: true"
        )
        yield Finding(Severity.WRONG, "replies", said)
    if not lost and any(one["flows"] > one["unanswered"] for one in traffic):
        yield Finding(Severity.GOOD, "replies", "backends' replies come back through this machine")
