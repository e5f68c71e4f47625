"""Intents: requests of an operator at run time (pause, allow, drain, weight, disable, forget), with who, why, since and
until.

There is one intent per scope and kind: a new one replaces the old one, and withdrawing it deletes the key.
"""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Annotated, NamedTuple

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.address import shown
from holdfast.model.base.codec import Natural
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
    ALLOW = "allow"
    """Releases what the brake of a worker holds."""
    FORGET = "forget"
    """Treats a source as complete and empty."""


class IntentName(NamedTuple):
    """Identity of an intent: there is one per kind and scope."""

    what: IntentKind
    scope: Scope


class Intent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One intent. Without `until` it holds until it is withdrawn; an ALLOW without `until` is for once, for what was
    shown. Only WEIGHT has a `weight` (0 to 100)."""

    what: IntentKind
    scope: Scope
    who: str
    why: str
    since: Moment
    until: Moment | None = None
    weight: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    revision: Natural = 0
    """Agents honour an ALLOW of the syncer for changes up to this revision: what the operator saw, nothing later."""

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

    def covers(self, revision: int, now: datetime) -> bool:
        """Tell whether an ALLOW releases a change of that revision at that wall-clock time."""
        return revision <= self.revision and self.holds(now)

    @property
    def lasting(self) -> str:
        """Continuation of a sentence: " until 12:00:00Z", with the date if it is another day, or nothing."""
        if self.until is None:
            return ""
        day = "" if self.until.date() == self.since.date() else f"{self.until:%Y-%m-%d} "
        return f" until {day}{self.until:%H:%M:%SZ}"

    @property
    def sentence(self) -> str:
        """Operator, expiry and reason."""
        return f"{self.who}{self.lasting}: “{self.why}”"


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
        Column("UNTIL", lambda _, intent: "withdrawn" if intent.until is None else rfc3339(intent.until)),
        Column("WHO", lambda _, intent: intent.who),
        Column("WHY", lambda _, intent: intent.why),
        Column("SINCE", lambda _, intent: rfc3339(intent.since), wide=True),
    ),
    tail=lambda intent: f"intents/{_write(intent.name)}",
)
