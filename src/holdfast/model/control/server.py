"""Servers: what each `holdfast server` says of itself, under a lease.

A leader that cannot work gives way to a follower that says here that it can (C33).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.number import Natural
from holdfast.model.base.timestamps import Moment, utc, written


class WorkerHealth(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One worker: healthy or not, in which state (`ok`, `waiting: database`, `crash-looping`), since when."""

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
    """Whether the inventory's database answers."""
    warm: bool = False
    """Whether its mirrors are complete, so that it could take over at once."""
    stands: bool = True
    """Whether it stands for election: it is neither paused nor resting."""
    workers: Mapping[str, WorkerHealth] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "since", utc(self.since))

    @property
    def able(self) -> bool:
        """Whether it could do a leader's work now (C33)."""
        return self.database and all(worker.healthy for worker in self.workers.values())

    @property
    def eligible(self) -> bool:
        """Whether leadership may be left to it: it could do the work, and would take it."""
        return self.able and self.stands


def _ailing(server: Server) -> str:
    sick = sorted(f"{name} {worker.state}" for name, worker in server.workers.items() if not worker.healthy)
    return ", ".join(sick) or ("ok" if server.stands else "ok, does not stand for election")


SERVER: Kind[Server, str] = Kind(
    name="server",
    plural="servers",
    struct=Server,
    place=named(own("servers/")),
    columns=(
        Column("SERVER", lambda name, _: name),
        Column("HOST", lambda _, server: server.host),
        Column("DATABASE", lambda _, server: "reachable" if server.database else "away"),
        Column("WORKERS", lambda _, server: _ailing(server)),
        Column("WARM", lambda _, server: "yes" if server.warm else "no"),
        Column("VERSION", lambda _, server: server.version),
        Column("SINCE", lambda _, server: written(server.since), wide=True),
        Column("PID", lambda _, server: str(server.pid), wide=True),
    ),
)
