"""Agent reports: what a Holdfast agent says of itself beyond "alive", so that the server can answer for its host.

A report is at most `REPORT_LIMIT` bytes: with 5,000 agents it is read, and kept, 5,000 times. `fitted` cuts long words
short, and the list of troubles until it fits, and says how many it left out; the counts by state stay complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import force_setattr, replace

from holdfast.model.base import codec
from holdfast.model.base.address import interface, mac
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.number import Natural
from holdfast.model.base.timestamps import Moment, utc

TROUBLE_LIMIT = 50
"""Failed or held objects that a report names."""
REPORT_LIMIT = 8_192
"""Bytes of an encoded report."""
TEXT_LIMIT = 200
"""Characters of one text in it: an interface with an absurd name must not keep its host from saying that it lives."""


class GateReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A gate that is closed, in the words of `Closed`: why, since when, what opens it, and for which source."""

    gate: str
    reason: str
    since: Moment
    opens: str = ""
    scope: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "since", utc(self.since))


class ObjectProblem(msgspec.Struct, frozen=True, gc=False):
    """An object that is not as it should be: `failed` when the kernel refused it, `held` when a gate did."""

    key: str
    state: Literal["failed", "held"]
    reason: str
    since: Moment

    def __post_init__(self) -> None:
        force_setattr(self, "since", utc(self.since))


class AgentReport(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One agent. `synced_revision` and `clock_skew` (seconds, ours minus the store's) ride on the 30 s report only."""

    version: str
    boot_id: str
    addresses: tuple[str, ...] = ()
    tunnel_macs: tuple[str, ...] = ()
    gates: tuple[GateReport, ...] = ()
    counts: Mapping[str, Natural] = {}
    troubles: tuple[ObjectProblem, ...] = ()
    troubles_left_out: Natural = 0
    pending_deletes: Natural = 0
    synced_revision: Natural | None = None
    clock_skew: float | None = None

    def __post_init__(self) -> None:
        if self.addresses:
            force_setattr(self, "addresses", tuple([interface(text) for text in self.addresses]))
        if self.tunnel_macs:
            force_setattr(self, "tunnel_macs", tuple([mac(text) for text in self.tunnel_macs]))


def fitted(report: AgentReport) -> AgentReport:
    """The report with as many troubles and gates, the first ones, as the limits allow."""
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
