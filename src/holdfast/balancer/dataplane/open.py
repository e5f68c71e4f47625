"""Which dataplane is configured, and whether it can be had here."""

from __future__ import annotations

from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.dataplane.dry_run import DryRunDataplane
from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape, refusal_of_nftables
from holdfast.config.sections.balancer import BalancerDataplaneSettings as Configuration


def open_dataplane(config: Configuration) -> VipDataplane:
    """The dataplane that is configured. One that cannot be had says so when it is used, again and again."""
    match config.kind:
        case "nftables":
            return NftablesDataplane(TableShape(config.table, config.table_size, config.snat))
        case "dry-run":
            return DryRunDataplane(config.table_size)


def refusal(config: Configuration) -> str | None:
    """One sentence why the configured dataplane cannot be had by this process, if so."""
    return refusal_of_nftables(config.table) if config.kind == "nftables" else None
