"""Agent reports: the state of an agent beyond "alive", from which the server answers questions about its host.

A report has at most `REPORT_LIMIT` bytes, because servers keep those of 5,000 agents. `fitted` shortens texts and drops
troubles until it fits, and counts what it dropped; the counts by state stay complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import force_setattr, replace

from holdfast.model.base import codec
from holdfast.model.base.address import interface, mac
from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.time import Moment, utc

TROUBLE_LIMIT = 50
"""Failed or held objects that a report names."""
REPORT_LIMIT = 8_192
"""Bytes of an encoded report."""
TEXT_LIMIT = 200
"""Characters of one text: an absurd interface name must not prevent the report."""


class GateReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A closed gate, with the words of `Closed`; `scope` is the source that it holds."""

    gate: str
    reason: str
    since: Moment
    opens: str = ""
    scope: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "since", utc(self.since))


class ObjectProblem(msgspec.Struct, frozen=True, gc=False):
    """An object that differs from its desired state: the kernel refused it (`failed`) or a gate holds it (`held`)."""

    key: str
    state: Literal["failed", "held"]
    reason: str
    since: Moment

    def __post_init__(self) -> None:
        force_setattr(self, "since", utc(self.since))


class AgentReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One agent. Only the periodic report has `synced_revision` and `clock_skew` (seconds, ours minus the store's).
    `store_verdict` is the agent's verdict on its store, such as `store_restored`; "" means that the store is ours."""

    version: str
    boot_id: str
    instance: str = ""
    """Tells agents of one boot apart, such as those of two containers; the same after a restart. Older agents have
    none."""
    addresses: tuple[str, ...] = ()
    tunnel_macs: tuple[str, ...] = ()
    gates: tuple[GateReport, ...] = ()
    counts: Mapping[str, Natural] = {}
    troubles: tuple[ObjectProblem, ...] = ()
    troubles_left_out: Natural = 0
    pending_deletes: Natural = 0
    store_verdict: str = ""
    routing: str = ""
    """`agent.routing`; empty from an older agent, and from one that cannot start."""
    asks_census: bool = False
    """Its brake is closed, and it sees its own host only: the census of this host alone can prove its list (N28)."""
    synced_revision: Natural | None = None
    clock_skew: float | None = None

    def __post_init__(self) -> None:
        if self.addresses:
            force_setattr(self, "addresses", tuple([interface(text) for text in self.addresses]))
        if self.tunnel_macs:
            force_setattr(self, "tunnel_macs", tuple([mac(text) for text in self.tunnel_macs]))


def fitted(report: AgentReport) -> AgentReport:
    """Cut the lists of troubles and gates from the end until the report fits the limits."""
    gates = tuple([_short_gate(gate) for gate in report.gates])
    troubles = tuple([_short_trouble(trouble) for trouble in report.troubles[:TROUBLE_LIMIT]])
    while True:
        left_out = report.troubles_left_out + len(report.troubles) - len(troubles)
        cut = replace(report, gates=gates, troubles=troubles, troubles_left_out=left_out)
        if len(codec.encode(cut)) <= REPORT_LIMIT or not (troubles or gates):
            return cut
        troubles, gates = (troubles[:-1], gates) if troubles else (troubles, gates[:-1])


def _short_gate(gate: GateReport) -> GateReport:
    return replace(gate, reason=_short(gate.reason), opens=_short(gate.opens), scope=_short(gate.scope))


def _short_trouble(trouble: ObjectProblem) -> ObjectProblem:
    return replace(trouble, key=_short(trouble.key), reason=_short(trouble.reason))


def _short(text: str) -> str:
    return text if len(text) <= TEXT_LIMIT else f"{text[: TEXT_LIMIT - 1]}…"


AGENT_REPORT: Kind[AgentReport, str] = Kind(
    name="agent",
    plural="agents",
    struct=AgentReport,
    place=named(own("agents/")),
    columns=(
        Column("HOST", lambda host, _: host),
        Column("VERSION", lambda _, report: report.version),
        Column("GATES CLOSED", lambda _, report: " ".join(gate.gate for gate in report.gates) or "none"),
        Column("OBJECTS", lambda _, report: " ".join(f"{n} {state}" for state, n in sorted(report.counts.items()))),
        Column("PENDING DELETES", lambda _, report: str(report.pending_deletes)),
        Column("ADDRESSES", lambda _, report: " ".join(report.addresses), wide=True),
        Column("BOOT", lambda _, report: report.boot_id, wide=True),
    ),
)
