"""What `holdfast doctor` says of a balancer's machine: whether it may program, forwards, and sees replies come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.balancer.dataplane.choice import refusal
from holdfast.cli.balancer import WORKER
from holdfast.cli.daemon import tell, workers
from holdfast.cli.finding import Finding, Mark
from holdfast.config.balancer import Balancer

_FORWARDING = {
    4: ("net.ipv4.ip_forward", Path("/proc/sys/net/ipv4/ip_forward")),
    6: ("net.ipv6.conf.all.forwarding", Path("/proc/sys/net/ipv6/conf/all/forwarding")),
}
_ENOUGH = 5
"""Flows without a reply that are no accident: below, some may just have begun."""


def examine(config: Balancer, runtime: Path) -> Iterator[Finding]:
    """Nothing, where no balancer is configured."""
    if config.dataplane.kind != "nftables" or not (config.frontends or config.source == "etcd"):
        return
    sentence = refusal(config.dataplane)
    if sentence is not None:
        yield Finding(Mark.WRONG, "dataplane", sentence)
    else:
        yield Finding(Mark.GOOD, "dataplane", f"nftables can be used; our table is inet {config.dataplane.table}")
    families = {6 if ":" in frontend.address else 4 for frontend in config.frontends.values()}
    yield from _forwarding(families)
    if any(name.rpartition("/")[2] == WORKER for name in workers(runtime)):
        yield from replies(tell(runtime, WORKER, "traffic"))


def _forwarding(families: set[int]) -> Iterator[Finding]:
    for family in sorted(families):
        name, path = _FORWARDING[family]
        if path.read_text().strip() != "1":
            said = f"{name} is not 1, so only clients on this machine are served by IPv{family}: sysctl -w {name}=1"
            yield Finding(Mark.WRONG, "forwarding", said)
        else:
            yield Finding(Mark.GOOD, "forwarding", f"{name} is 1")


def replies(traffic: list[dict[str, Any]]) -> Iterator[Finding]:
    """A backend can be healthy by our own probes while its replies to clients take another way."""
    lost = [one for one in traffic if one["unanswered"] >= _ENOUGH and 2 * one["unanswered"] > one["flows"]]
    for one in lost:
        said = (
            f"{one['backend']} of {one['frontend']}: no reply came by in {one['unanswered']} of {one['flows']} flows; "
            "route its replies to clients through this machine, or set balancer.dataplane.snat: true"
        )
        yield Finding(Mark.WRONG, "replies", said)
    if not lost and any(one["flows"] > one["unanswered"] for one in traffic):
        yield Finding(Mark.GOOD, "replies", "backends' replies come back through this machine")
