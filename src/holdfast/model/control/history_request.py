"""History requests: a server asks the others for their last decisions, because each keeps its own decision log.

Request and answers are under one short lease of the server that asks: they are gone once it has read them.
"""

from __future__ import annotations

import msgspec

from holdfast.model.base.keys import named, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.control.decision import Decision


class HistoryRequest(msgspec.Struct, frozen=True, gc=False):
    """Asks `servers` for their `last` decisions (0: as many as fit), only those about `key` if it is given."""

    servers: tuple[str, ...]
    key: str | None
    last: int


class HistoryAnswer(msgspec.Struct, frozen=True, gc=False):
    """Decisions of one server, oldest first."""

    decisions: tuple[Decision, ...]
    omitted: int = 0
    """Number of older decisions that did not fit."""


HISTORY_REQUEST: Kind[HistoryRequest, str] = Kind(
    name="history-request",
    plural="history-requests",
    struct=HistoryRequest,
    place=named(own("history/requests/")),
    columns=(
        Column("REQUEST", lambda name, _: name),
        Column("SERVERS", lambda _, asked: ", ".join(asked.servers)),
        Column("LAST", lambda _, asked: str(asked.last)),
    ),
)

HISTORY_ANSWER: Kind[HistoryAnswer, str] = Kind(
    name="history-answer",
    plural="history-answers",
    struct=HistoryAnswer,
    place=named(own("history/answers/")),
    columns=(
        Column("ANSWER", lambda name, _: name),
        Column("DECISIONS", lambda _, answer: str(len(answer.decisions))),
    ),
)


def answer_name(request: str, server: str) -> str:
    """Return the name of the answer of one server to the request of that name."""
    return f"{request}.{server}"
