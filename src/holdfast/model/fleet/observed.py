"""Observed state in the inventory: one row per agent, and one per endpoint of the inventory.

The key of a row is the key of the report: an endpoint that moved has a new key, at which nothing is known yet. Encoding
is canonical, so that rows can be compared as bytes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

AGENT: Final = "agent"
ENDPOINT: Final = "endpoint"


class AgentSeen(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One agent: whether its report exists, and its last report. A host that never reported has none."""

    alive: bool
    reported: str = ""
    """The time of the last report, as its host wrote it."""
    uptime: float | None = None

    @property
    def words(self) -> str:
        """The state for a sentence."""
        last = f", last reported {self.reported}" if self.reported else ", no readable report so far"
        return "alive" if self.alive else f"silent{last}"


class ObservedState(StrEnum):
    """State of an endpoint, in the words of the inventory."""

    ACTIVE = "ACTIVE"
    DOWN = "DOWN"
    ERROR = "ERROR"
    NONE = ""
    """Not reported yet."""


class EndpointSeen(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One endpoint: its last reported state. `known` is False while the agent of its host is not alive."""

    status: ObservedState = ObservedState.NONE
    known: bool = True

    @property
    def shown(self) -> str:
        """The displayed state: up, down, error or unknown."""
        return _SHOWN[self.status] if self.known else "unknown"

    @property
    def words(self) -> str:
        """The state for a sentence: the last report, and whether it is still valid."""
        return (self.status or "not reported yet") + ("" if self.known else ", unknown now")


_SHOWN = {
    ObservedState.ACTIVE: "up",
    ObservedState.DOWN: "down",
    ObservedState.ERROR: "error",
    ObservedState.NONE: "unknown",
}
