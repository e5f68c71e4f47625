"""Opens the configured dataplane, or says why this process cannot use it."""

from __future__ import annotations

from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.dataplane.dry_run import DryRunDataplane
from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape, refusal_of_nftables
from holdfast.balancer.vip import Canonical, as_wanted
from holdfast.config.sections.balancer import BalancerDataplaneSettings


def open_dataplane(config: BalancerDataplaneSettings) -> VipDataplane:
    """Open the configured dataplane. An unreachable one raises `Away` on each use."""
    match config.kind:
        case "nftables":
            return NftablesDataplane(TableShape(config.table, config.snat, config.counters == "packets"))
        case "dry-run":
            return DryRunDataplane()


def canonical_form(_config: BalancerDataplaneSettings) -> Canonical:
    """Form of objects in the configured dataplane, without opening it. All of them so far hold everything."""
    return as_wanted


def refusal(config: BalancerDataplaneSettings) -> str | None:
    """Explain in one sentence why this process cannot use the configured dataplane; None when it can."""
    return refusal_of_nftables(config.table) if config.kind == "nftables" else None
