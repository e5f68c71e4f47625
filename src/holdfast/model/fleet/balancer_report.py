"""Balancer reports: digests of what each balancer programs, and the state of its frontends. Leased."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind


class BalancerReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """Digests of the programmed tables and of their three inputs; peers compare them."""

    version: str
    table: str
    configuration: str
    health: str
    intents: str
    frontends: Mapping[str, str] = {}
    """Frontend → up, down or unknown."""
    draining: Mapping[str, int | None] = {}
    """Drained host → current flows of its backends, counted after the drain was programmed; None where the dataplane
    does not count flows."""
    store_verdict: str = ""
    """Verdict of this balancer on the store, such as `store_restored`; empty while it takes the store as it is."""


def _serving(report: BalancerReport) -> str:
    return f"{sum(state == 'up' for state in report.frontends.values())} of {len(report.frontends)}"


BALANCER_REPORT: Kind[BalancerReport, str] = Kind(
    name="balancer",
    plural="balancers",
    struct=BalancerReport,
    place=named(own("balancers/")),
    columns=(
        Column("BALANCER", lambda name, _: name),
        Column("TABLE", lambda _, report: report.table),
        Column("SERVING", lambda _, report: _serving(report)),
        Column("VERSION", lambda _, report: report.version),
        Column("CONFIGURATION", lambda _, report: report.configuration, wide=True),
        Column("HEALTH", lambda _, report: report.health, wide=True),
        Column("INTENTS", lambda _, report: report.intents, wide=True),
        Column("VERDICT", lambda _, report: report.store_verdict, wide=True),
    ),
)
