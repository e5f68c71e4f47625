"""Balancer reports: digests of what each balancer programs, and the state of its frontends and backends. Leased.

Every report has the state of all frontends, by which peers and `status` judge a VIP. `detailed` adds pools and backends
in the order given, until the report has `REPORT_LIMIT` bytes, and counts the frontends that it left out: every balancer
writes its report every few seconds, and every server and API keeps those of all balancers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import force_setattr, replace

from holdfast.model.base import codec
from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.time import Moment, utc

REPORT_LIMIT = 16_384
"""Bytes of an encoded report with details. The states of more than some 400 frontends take more, without details."""
BACKENDS_LIMIT = 32
"""Backends of one pool that a report names."""
TEXT_LIMIT = 80
"""Characters of a reason, and of who paused a frontend."""


class BackendReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """A backend in a pool. `weight` is what is programmed, None for nothing; `why` and `since` belong to a state that
    is not up."""

    name: str
    address: str
    state: str
    configured: Natural
    weight: Natural | None = None
    why: str = ""
    since: Moment | None = None

    def __post_init__(self) -> None:
        if self.since is not None:
            force_setattr(self, "since", utc(self.since))
        if len(self.why) > TEXT_LIMIT:
            force_setattr(self, "why", _short(self.why))


class PoolReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """A pool: how many backends it has, how many of them are up, and at most `BACKENDS_LIMIT` of them."""

    up: Natural
    total: Natural
    backends: tuple[BackendReport, ...] = ()


class FrontendReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """A frontend with its pools. `active_pool` is the index of the pool that serves."""

    vip: str
    pools: tuple[PoolReport, ...] = ()
    active_pool: Natural | None = None
    panic: bool = False
    paused: str = ""
    """Operator who paused it, and the reason; empty while it is not paused."""
    programmed: bool = False

    def __post_init__(self) -> None:
        if len(self.paused) > TEXT_LIMIT:
            force_setattr(self, "paused", _short(self.paused))


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
    details: Mapping[str, FrontendReport] = {}
    """Frontend → its pools and backends. Older balancers have none."""
    details_left_out: Natural = 0
    """Frontends whose details did not fit."""


def detailed(report: BalancerReport, found: Iterable[tuple[str, FrontendReport]]) -> BalancerReport:
    """Add details of frontends, the most important first, until the report is full. Reads no more than fit."""
    details: dict[str, FrontendReport] = {}
    full = replace(report, details={"": FrontendReport(vip="")}, details_left_out=len(report.frontends))
    room = REPORT_LIMIT - len(codec.encode(full))
    for name, one in found:
        room -= len(codec.encode({name: one}))
        if room < 0:
            break
        details[name] = one
    return replace(report, details=details, details_left_out=max(0, len(report.frontends) - len(details)))


def _short(text: str) -> str:
    return f"{text[: TEXT_LIMIT - 1]}…"


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
