"""Intents: requests of an operator at run time (pause, drain, weight, disable), with who, why, since and until.

There is one intent per scope and kind: a new one replaces the old one, and `resume` deletes the key.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Annotated, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.address import shown
from holdfast.model.base.keys import KeySpace, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.name import NameRefused
from holdfast.model.base.time import Moment, rfc3339, utc
from holdfast.model.control.scope import Scope


class IntentKind(Enum):
    """Kinds of intents."""

    PAUSE = "pause"
    DRAIN = "drain"
    WEIGHT = "weight"
    DISABLE = "disable"


class IntentName(NamedTuple):
    """Identity of an intent: there is one per kind and scope."""

    what: IntentKind
    scope: Scope


class Intent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One intent. Without `until` it holds until it is revoked; only WEIGHT has a `weight` (0 to 100)."""

    what: IntentKind
    scope: Scope
    who: str
    why: str
    since: Moment
    until: Moment | None = None
    weight: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "since", utc(self.since))
        if self.until is not None:
            force_setattr(self, "until", utc(self.until))
        if (self.weight is not None) != (self.what is IntentKind.WEIGHT):
            raise ValueError("an intent of kind weight needs a weight, and no other kind has one")

    @property
    def name(self) -> IntentName:
        return IntentName(self.what, self.scope)

    def holds(self, now: datetime) -> bool:
        """Tell whether it is still in force at that wall-clock time."""
        return self.until is None or now < self.until


def _write(name: IntentName) -> str:
    return f"{name.what.value}/{name.scope.path}"


def _read(rest: str) -> IntentName:
    word, _, path = rest.partition("/")
    try:
        what = IntentKind(word)
    except ValueError:
        raise NameRefused(f"{shown(word)} is not a kind of intent") from None
    return IntentName(what, Scope.of_path(path))


INTENT: Kind[Intent, IntentName] = Kind(
    name="intent",
    plural="intents",
    struct=Intent,
    place=KeySpace(own("intents/"), _write, _read),
    columns=(
        Column("INTENT", lambda name, _: name.what.value),
        Column("SCOPE", lambda name, _: str(name.scope)),
        Column("WEIGHT", lambda _, intent: "" if intent.weight is None else str(intent.weight)),
        Column("UNTIL", lambda _, intent: "revoked" if intent.until is None else rfc3339(intent.until)),
        Column("WHO", lambda _, intent: intent.who),
        Column("WHY", lambda _, intent: intent.why),
        Column("SINCE", lambda _, intent: rfc3339(intent.since), wide=True),
    ),
    tail=lambda intent: f"intents/{_write(intent.name)}",
)
