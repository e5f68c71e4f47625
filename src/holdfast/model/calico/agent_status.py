"""Agent status: the report that an agent is alive, every 30 s, in Felix's keys and format.

`status` has a lease and expires when the agent stops. `last_reported_status` stays. The time is kept as it was written;
a missing or unparseable time is a result, not an error.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Annotated

import msgspec

from holdfast.model.base.keys import KeySpace, felix
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.name import segment
from holdfast.model.base.time import parse_time, rfc3339


class Unclear(Enum):
    """Reason why the time of a report is unknown."""

    MISSING = "the report carries no time"
    UNPARSEABLE = "the time of the report cannot be parsed"


class AgentStatus(msgspec.Struct, frozen=True, gc=False):
    """One report. `uptime` is in seconds; `first_update` marks the first report after a start of the agent."""

    time: Annotated[str, msgspec.Meta(max_length=100)] | None = None
    uptime: float | None = None
    first_update: bool = False

    @classmethod
    def of(cls, moment: datetime, uptime: float, *, first: bool = False) -> AgentStatus:
        """A report of that time, in whole seconds, as Felix writes it."""
        return cls(rfc3339(moment.replace(microsecond=0)), uptime, first)

    @property
    def reported(self) -> datetime | Unclear:
        """The time of the report, on the wall clock of the reporting host."""
        if self.time is None:
            return Unclear.MISSING
        try:
            return parse_time(self.time)  # protection: C7, a naive time is UTC
        except ValueError:
            return Unclear.UNPARSEABLE


def _place(word: str) -> KeySpace[str]:
    ending = f"/{word}"

    def read_host(rest: str) -> str | None:
        host, _, tail = rest.partition("/")
        return segment(host) if tail == word else None

    return KeySpace(felix, lambda host: segment(host) + ending, read_host)


def _kind(name: str, plural: str, word: str) -> Kind[AgentStatus, str]:
    return Kind(
        name=name,
        plural=plural,
        struct=AgentStatus,
        place=_place(word),
        columns=(
            Column("HOST", lambda host, _: host),
            Column("REPORTED", lambda _, status: status.time or ""),
            Column("UPTIME", lambda _, status: "" if status.uptime is None else f"{status.uptime:.0f} s"),
            Column("FIRST", lambda _, status: "yes" if status.first_update else "", wide=True),
        ),
    )


AGENT_STATUS = _kind("agent-status", "agent-statuses", "status")
LAST_STATUS = _kind("last-status", "last-statuses", "last_reported_status")
