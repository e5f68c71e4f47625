"""The control plane's server: its name, and the timings of its election."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, Name, Section
from holdfast.config.schema.scalars import show_duration


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


class ServerSettings(Section, frozen=True, kw_only=True):
    """The server and its election."""

    name: Annotated[
        Name | None,
        FieldDoc("Name of this server, unique in its region; `null` takes the machine's host name."),
    ] = None
    ttl: Annotated[
        timedelta,
        FieldDoc(
            "How long leadership outlives its last proven renewal; whole seconds.",
            small="a slow disk under etcd or a busy machine costs the leadership",
            big="when a leader dies, nobody leads for that long",
            least=_seconds(2),
            most=_seconds(600),
        ),
    ] = _seconds(15)
    renew_every: Annotated[
        timedelta,
        FieldDoc(
            "Between two renewals of the leadership.",
            small="needless load on etcd",
            big="few attempts fit into `renew_deadline`",
            least=_seconds(0.1),
            most=_seconds(120),
        ),
    ] = _seconds(2)
    renew_deadline: Annotated[
        timedelta,
        FieldDoc(
            "A leader that has proven no renewal for this long stops leading by itself.",
            small="one slow answer of etcd costs the leadership",
            big="little time is left to stop the work before the lease runs out",
            least=_seconds(0.5),
            most=_seconds(590),
        ),
    ] = _seconds(10)
    rpc_timeout: Annotated[
        timedelta,
        FieldDoc(
            "How long one call of the election may take.",
            small="calls are given up that would have been answered",
            big="one hanging member of etcd eats the whole `renew_deadline`",
            least=_seconds(0.1),
            most=_seconds(290),
        ),
    ] = _seconds(5)

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.ttl % _seconds(1):
            yield FieldConflict(("ttl",), "must be whole seconds: etcd would round it")
        if self.ttl <= self.renew_deadline:
            yield FieldConflict(
                ("ttl", "renew_deadline"),
                f"must be longer than server.renew_deadline ({show_duration(self.renew_deadline)}): else a leader "
                "still believes it leads when its lease has run out already",
            )
        if self.renew_deadline <= 1.2 * self.renew_every:
            yield FieldConflict(
                ("renew_deadline", "renew_every"),
                f"must be longer than 1.2 times server.renew_every ({show_duration(self.renew_every)}): else a leader "
                "gives up before its second attempt",
            )
        if self.rpc_timeout > self.renew_deadline / 2:
            yield FieldConflict(
                ("rpc_timeout", "renew_deadline"),
                f"must not be longer than half of server.renew_deadline ({show_duration(self.renew_deadline)}): else "
                "one hanging call leaves no time for another",
            )
