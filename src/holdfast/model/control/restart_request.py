"""Restart requests: an operator on another machine asks a server to restart one of its workers.

The key is short-lived: the server deletes it before it restarts the worker, so that no request is carried out twice.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.time import Moment, rfc3339, utc


class RestartRequest(msgspec.Struct, frozen=True, gc=False):
    """Restart `worker` of the server that the key names."""

    worker: str
    who: str
    why: str
    at: Moment

    def __post_init__(self) -> None:
        force_setattr(self, "at", utc(self.at))


RESTART_REQUEST: Kind[RestartRequest, str] = Kind(
    name="restart-request",
    plural="restart-requests",
    struct=RestartRequest,
    place=named(own("restarts/")),
    columns=(
        Column("SERVER", lambda name, _: name),
        Column("WORKER", lambda _, asked: asked.worker),
        Column("WHO", lambda _, asked: asked.who),
        Column("WHY", lambda _, asked: asked.why),
        Column("SINCE", lambda _, asked: rfc3339(asked.at), wide=True),
    ),
)
