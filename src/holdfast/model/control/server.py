"""Servers: the report of each `holdfast server` on itself, under a lease.

A leader that cannot work hands over to a follower whose report says that it can (C33).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.time import Moment, rfc3339, utc


class WorkerHealth(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Health of one worker. `state` is `ok`, `waiting: database`, `crash-looping` and the like."""

    healthy: bool
    state: str
    since: Moment | None = None

    def __post_init__(self) -> None:
        if self.since is not None:
            force_setattr(self, "since", utc(self.since))


class Server(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One server. `boot_id`, `pid_namespace` and `pid` tell two servers with the same name apart."""

    host: str
    pid: Natural
    boot_id: str
    pid_namespace: str
    version: str
    since: Moment
    database: bool
    """The database of the inventory answers."""
    failed: str = ""
    """Reason for which it failed when it last led; empty once it has succeeded (C45)."""
    warm: bool = False
    """Its mirrors are complete, so that it can take over at once."""
    stands: bool = True
    """True if it is a candidate: not paused and not in the back-off after a step-down."""
    rests: str = ""
    """Reason for which it is no candidate."""
    lag_s: float = 0.0
    """Age of the oldest waiting change of any of its workers, in seconds."""
    pauses: tuple[str, ...] = ()
    """Pauses in force here, one sentence each."""
    workers: Mapping[str, WorkerHealth] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "since", utc(self.since))

    @property
    def works(self) -> bool:
        """Database and workers are healthy now, in the role that it has."""
        return self.database and all(worker.healthy for worker in self.workers.values())

    @property
    def able(self) -> bool:
        """It can do the work of a leader now (C33)."""
        return self.works and not self.failed

    @property
    def eligible(self) -> bool:
        """It can do the work of a leader and is a candidate."""
        return self.able and self.stands

    @property
    def why_not(self) -> str:
        """Reasons for which it is not eligible; empty if it is."""
        reasons = [] if self.stands else [self.rests or "it does not stand for election"]
        reasons += sorted(f"{name} {worker.state}" for name, worker in self.workers.items() if not worker.healthy)
        if not self.database and not any("database" in reason for reason in reasons):
            reasons.append("it has not reached the database yet")
        if self.failed and self.works:
            reasons.append(f"it failed as leader ({self.failed})")
        return ", ".join(reasons)


SERVER: Kind[Server, str] = Kind(
    name="server",
    plural="servers",
    struct=Server,
    place=named(own("servers/")),
    columns=(
        Column("SERVER", lambda name, _: name),
        Column("HOST", lambda _, server: server.host),
        Column("DATABASE", lambda _, server: "reachable" if server.database else "away"),
        Column("WORKERS", lambda _, server: server.why_not or "ok"),
        Column("WARM", lambda _, server: "yes" if server.warm else "no"),
        Column("VERSION", lambda _, server: server.version),
        Column("SINCE", lambda _, server: rfc3339(server.since), wide=True),
        Column("PID", lambda _, server: str(server.pid), wide=True),
    ),
)
