"""Opens the configured dataplane, or says why this process cannot use it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from holdfast.balancer.dataplane.api import VipDataplane
from holdfast.balancer.dataplane.dry_run import DryRunDataplane
from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape, refusal_of_nftables
from holdfast.balancer.dataplane.vpp import rules
from holdfast.balancer.vip import Canonical, as_wanted, unencapsulated
from holdfast.config.sections.balancer import BalancerDataplaneSettings


def open_dataplane(config: BalancerDataplaneSettings, state: Path) -> VipDataplane:
    """Open the configured dataplane. An unreachable one raises `Away` on each use. `state` keeps what it does not give
    back."""
    match config.kind:
        case "nftables":
            return NftablesDataplane(TableShape(config.table, config.snat, config.counters == "packets"))
        case "vpp":
            from holdfast.balancer.dataplane.vpp.dataplane import VppDataplane  # its client is an extra

            return VppDataplane(config.vpp, state / "vpp.json")
        case "dry-run":
            return DryRunDataplane()


def canonical_form(config: BalancerDataplaneSettings) -> Canonical:
    """Form of objects in the configured dataplane, without opening it."""
    match config.kind:
        case "nftables":
            return unencapsulated
        case "vpp":
            return lambda _vip, objects: rules.canonical(objects, config.vpp.table_length)
        case "dry-run":
            return as_wanted


def refusal(config: BalancerDataplaneSettings) -> str | None:
    """Explain in one sentence why this process cannot use the configured dataplane; None when it can."""
    match config.kind:
        case "nftables":
            return refusal_of_nftables(config.table)
        case "vpp" if find_spec("vpp_papi") is None:
            return "kind: vpp needs VPP's API client: pip install 'holdfast[vpp]'"
        case _:
            return None
