"""Handover: a leader that cannot do a leader's work resigns in favour of a server that can (C33).

It does so only after its inability has lasted, and only when another server reports that it could lead and would: a
database that is unreachable for every server causes no handover, and neither does a paused server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.server import Server


class HandoverRefused(Exception):
    """No server can take over. The message says why, and what to do."""


def able_successors(others: Mapping[str, Server], to: str = "") -> list[str]:
    """Return the servers that can take over from a leader that steps down, only `to` if it is given. Raises
    `HandoverRefused` if there is none: stepping down would leave the fleet without a leader that works."""
    if to and to not in others:
        raise HandoverRefused(f"no other server is called {to}; there are: {', '.join(sorted(others)) or 'none'}")
    wanted = {to: others[to]} if to else others
    able = [name for name, server in sorted(wanted.items()) if server.eligible]
    if not able:
        reasons = "; ".join(f"{name}: {server.why_not}" for name, server in sorted(wanted.items()))
        who = f"{to} cannot" if to else "no other server can"
        raise HandoverRefused(f"{who} take over ({reasons or 'there is none'}): see holdfast get servers")
    return able


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
