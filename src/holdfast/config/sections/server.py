"""Server of the control plane: its name, and the timings of its election."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import FieldConflict, FieldDoc, Name, Section, seconds
from holdfast.config.schema.scalars import show_duration


class ServerSettings(Section, frozen=True, kw_only=True):
    """Server and its election."""

    name: Annotated[
        Name | None,
        FieldDoc("Name of this server, unique in its region; `null` for the machine's host name."),
    ] = None
    ttl: Annotated[
        timedelta,
        FieldDoc(
            "Lifetime of the leader lease after its last confirmed renewal. Whole seconds.",
            small="a slow disk of etcd or a busy machine ends the leadership",
            big="when a leader dies, there is no leader for that long",
            least=seconds(2),
            most=seconds(600),
        ),
    ] = seconds(15)
    renew_every: Annotated[
        timedelta,
        FieldDoc(
            "Interval between two renewals of the lease.",
            small="renewals load etcd",
            big="few attempts fit into `renew_deadline`",
            least=seconds(0.1),
            most=seconds(120),
        ),
    ] = seconds(2)
    renew_deadline: Annotated[
        timedelta,
        FieldDoc(
            "A leader without a confirmed renewal for this long steps down by itself.",
            small="one slow reply of etcd ends the leadership",
            big="little time is left to stop the work before the lease expires",
            least=seconds(0.5),
            most=seconds(590),
        ),
    ] = seconds(10)
    rpc_timeout: Annotated[
        timedelta,
        FieldDoc(
            "Timeout of one etcd call of the election.",
            small="calls are abandoned that etcd would have answered",
            big="one hanging member of etcd uses up the whole `renew_deadline`",
            least=seconds(0.1),
            most=seconds(290),
        ),
    ] = seconds(5)

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.ttl % seconds(1):
            yield FieldConflict(("ttl",), "must be whole seconds: etcd would round it")
        if self.ttl <= self.renew_deadline:
            yield FieldConflict(
                ("ttl", "renew_deadline"),
                f"must be longer than server.renew_deadline ({show_duration(self.renew_deadline)}): else a leader "
                "continues after its lease has expired",
            )
        if self.renew_deadline <= 1.2 * self.renew_every:
            yield FieldConflict(
                ("renew_deadline", "renew_every"),
                f"must be longer than 1.2 times server.renew_every ({show_duration(self.renew_every)}): else a leader "
                "steps down before its second attempt",
            )
        if self.rpc_timeout > self.renew_deadline / 2:
            yield FieldConflict(
                ("rpc_timeout", "renew_deadline"),
                f"must not be longer than half of server.renew_deadline ({show_duration(self.renew_deadline)}): else "
                "one hanging call leaves no time for another",
            )
