"""What is really up, as the inventory keeps it: one row per agent, one per endpoint of the inventory.

An agent's row stands at its status key, an endpoint's at the key at which its host speaks of it: one that moved is
another key, and nothing is known of it there yet. Encoding is canonical, so that comparing is comparing bytes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

AGENT: Final = "agent"
ENDPOINT: Final = "endpoint"


class AgentSeen(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One agent: whether its report is there, and what the last one said. A host that never reported has none."""

    alive: bool
    reported: str = ""
    """The time of the last report, as its host wrote it."""
    uptime: float | None = None

    @property
    def words(self) -> str:
        """As a sentence has it."""
        last = f", last reported {self.reported}" if self.reported else ", never reported"
        return "alive" if self.alive else f"silent{last}"


class ObservedState(StrEnum):
    """How an endpoint is, in the words of the inventory."""

    ACTIVE = "ACTIVE"
    DOWN = "DOWN"
    ERROR = "ERROR"
    NONE = ""
    """Nobody has said anything yet."""


class EndpointSeen(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One endpoint: the last word on it. `known` is False while the agent of its host is not alive."""

    status: ObservedState = ObservedState.NONE
    known: bool = True

    @property
    def shown(self) -> str:
        """up, down, error or unknown, as people see it."""
        return _SHOWN[self.status] if self.known else "unknown"

    @property
    def words(self) -> str:
        """As a sentence has it: the last word, and whether it still counts."""
        return (self.status or "nothing said yet") + ("" if self.known else ", unknown now")


_SHOWN = {
    ObservedState.ACTIVE: "up",
    ObservedState.DOWN: "down",
    ObservedState.ERROR: "error",
    ObservedState.NONE: "unknown",
}
