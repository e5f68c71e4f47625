"""Handover: a leader that cannot do a leader's work resigns in favour of a server that can (C33).

It does so only after its inability has lasted, and only when another server reports that it could lead and would: a
database that is unreachable for every server causes no handover, and neither does a paused server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.server import Server

PATIENCE = Duration(seconds=60)


@dataclass(frozen=True, slots=True)
class Ability:
    """Instant since which this server has been unable to do a leader's work; NEVER while it is able."""

    unable_since: Instant = NEVER

    def updated(self, own: Server, now: Instant) -> Ability:
        if own.able:
            return Ability()
        return Ability(self.unable_since or now)


def successor(  # protection: C33
    ability: Ability, others: Mapping[str, Server], now: Instant, patience: Duration = PATIENCE
) -> str | None:
    """The server to hand over to, if this server should now. The first by name, so that all servers would agree."""
    if not ability.unable_since or now - ability.unable_since < patience:
        return None
    return next((name for name, server in sorted(others.items()) if server.eligible), None)
