"""Giving way: a leader that cannot do a leader's work resigns to a server that can (C33).

Only when its own inability has lasted, and only when somebody else says that it could do better and would: a database
that is away for everybody moves nobody, and nobody makes room for a server that is paused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.server import Server

PATIENCE = Duration(seconds=60)


@dataclass(frozen=True, slots=True)
class Ability:
    """Since when this server has been unable to do a leader's work; never, while it is able."""

    unable_since: Instant = NEVER

    def seen(self, own: Server, now: Instant) -> Ability:
        if own.able:
            return Ability()
        return Ability(self.unable_since or now)


def successor(
    ability: Ability, others: Mapping[str, Server], now: Instant, patience: Duration = PATIENCE
) -> str | None:
    """Who should lead instead, if this server should give way now. The first by name, so that all would agree."""
    if not ability.unable_since or now - ability.unable_since < patience:
        return None
    return next((name for name, server in sorted(others.items()) if server.eligible), None)
