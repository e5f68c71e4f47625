"""Which dataplane is configured, and whether it can be had here."""

from __future__ import annotations

from holdfast.balancer.dataplane.api import Dataplane
from holdfast.balancer.dataplane.dry_run import DryRun
from holdfast.balancer.dataplane.nftables import Nftables, Shape, refusal_of_nftables
from holdfast.config.sections.balancer import Dataplane as Configuration


def open_dataplane(config: Configuration) -> Dataplane:
    """The dataplane that is configured. One that cannot be had says so when it is used, again and again."""
    match config.kind:
        case "nftables":
            return Nftables(Shape(config.table, config.table_size, config.snat))
        case "dry-run":
            return DryRun(config.table_size)


def refusal(config: Configuration) -> str | None:
    """One sentence why the configured dataplane cannot be had by this process, if so."""
    return refusal_of_nftables(config.table) if config.kind == "nftables" else None
