"""Handover: a leader that cannot do a leader's work resigns in favour of a server that can (C33).

It does so only after its inability has lasted, and only when another server reports that it could lead and would: a
database that is unreachable for every server causes no handover, and neither does a paused server. When such a database
is back, a follower may notice before the leader's next attempt: the other server must have been able for a while (C45).

A server that failed as leader stays unable until it has succeeded: as leader, or in a trial that had failed as well. A
trial that succeeds all the time proves nothing about a failure that it did not notice. Restarting the server's elector
forgets the failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
ABLE_FOR = Duration(seconds=10)
"""Twice the longest time between two attempts of a worker that waits for the database."""


FOLLOWING: Final = "following"
"""State of a worker that does not do a leader's work; a leader shows it for a moment, until that has begun."""
TRIAL_FAILED: Final = "waiting: database (trial)"
"""State of a follower's syncer whose trial failed. A leader's differs, and is shown for a moment after its term."""
_STORE_AWAY: Final = "waiting: store"


@dataclass(frozen=True, slots=True)
class Ability:
    """Ability of this server and of the others to do a leader's work."""

    unable_since: Instant = NEVER
    """Instant since which this server has been unable; NEVER while it is able."""
    other_since: Instant = NEVER
    """Instant since which there has always been another server that is able; NEVER while there is none."""
    failed: str = ""
    """Reason for which this server fails as leader, or failed when it last led; empty once it has succeeded."""
    reproduced: bool = False
    """True if a trial of this server has failed, too, since it led: then a trial that succeeds proves something."""

    def updated(self, own: Server, others: Mapping[str, Server], now: Instant, *, leads: bool) -> Ability:
        other = any(server.eligible for server in others.values())
        reproduced = not leads and (self.reproduced or _has_failed_trial(own))
        return Ability(
            NEVER if own.works else self.unable_since or now,
            self.other_since or now if other else NEVER,
            self.failure_of_leader(own) if leads else self.remembered_failure(own, reproduced=reproduced),
            reproduced,
        )

    def failure_of_leader(self, own: Server) -> str:
        """Return the failure of a leader. An earlier one stands while its work has not begun or waits for the store."""
        return leader_failure(own) or ("" if own.works and _has_begun(own) else self.failed)

    def remembered_failure(self, own: Server, *, reproduced: bool) -> str:  # protection: C45
        """C45: return the failure as leader until it is refuted."""
        return "" if reproduced and own.works else self.failed

    def has_able_other(self, now: Instant, able_for: Duration) -> bool:  # protection: C45
        """C45: return whether another server has been able for longer than this one needs to notice that it is, too."""
        return bool(self.other_since) and now - self.other_since >= able_for


def _has_begun(own: Server) -> bool:
    return all(worker.state != FOLLOWING for worker in own.workers.values())


def _has_failed_trial(own: Server) -> bool:
    return any(worker.state == TRIAL_FAILED for worker in own.workers.values())


def leader_failure(own: Server) -> str:
    """Return the reason for which a leader fails; empty if it works. A store that is away is away for every server."""
    elsewhere = [worker for worker in own.workers.values() if not worker.healthy and worker.state != _STORE_AWAY]
    return own.why_not if elsewhere or not own.database else ""


def successor(  # protection: C33
    ability: Ability,
    others: Mapping[str, Server],
    now: Instant,
    patience: Duration = PATIENCE,
    able_for: Duration = ABLE_FOR,
) -> str | None:
    """The server to hand over to, if this server should now. The first by name, so that all servers would agree."""
    if not ability.unable_since or now - ability.unable_since < patience or not ability.has_able_other(now, able_for):
        return None
    return next((name for name, server in sorted(others.items()) if server.eligible), None)
