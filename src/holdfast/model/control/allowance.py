"""Allowances: an operator releases what a closed gate holds, once or until a time, with a reason.

Agents honour an allowance of the syncer for changes up to `revision`: what the operator saw, and nothing later.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import KeySpace, own
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.name import NameRefused, segment
from holdfast.model.base.time import Moment, rfc3339, utc
from holdfast.model.control.scope import Scope


class AllowanceName(NamedTuple):
    """A gate and its scope."""

    gate: str
    scope: Scope


class Allowance(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, kw_only=True):
    """One allowance: either `once`, for the plan that was shown, or `until` a time."""

    gate: str
    scope: Scope
    revision: Natural
    who: str
    why: str
    since: Moment
    once: bool = False
    until: Moment | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "since", utc(self.since))
        if self.until is not None:
            force_setattr(self, "until", utc(self.until))
        if self.once == (self.until is not None):
            raise ValueError("an allowance is either once or until a time")

    @property
    def name(self) -> AllowanceName:
        return AllowanceName(self.gate, self.scope)

    def covers(self, revision: int, now: datetime) -> bool:
        """Tell whether a change of that revision may pass at that wall-clock time."""
        return revision <= self.revision and (self.until is None or now < self.until)


def _write(name: AllowanceName) -> str:
    return f"{segment(name.gate)}/{name.scope.path}"


def _read(rest: str) -> AllowanceName:
    gate, slash, path = rest.partition("/")
    if not slash:
        raise NameRefused("the key of an allowance names a gate and a scope")
    return AllowanceName(segment(gate), Scope.of_path(path))


ALLOWANCE: Kind[Allowance, AllowanceName] = Kind(
    name="allowance",
    plural="allowances",
    struct=Allowance,
    place=KeySpace(own("allow/"), _write, _read),
    columns=(
        Column("GATE", lambda name, _: name.gate),
        Column("SCOPE", lambda name, _: str(name.scope)),
        Column("UNTIL", lambda _, allowance: "once" if allowance.until is None else rfc3339(allowance.until)),
        Column("REVISION", lambda _, allowance: str(allowance.revision)),
        Column("WHO", lambda _, allowance: allowance.who),
        Column("WHY", lambda _, allowance: allowance.why),
        Column("SINCE", lambda _, allowance: rfc3339(allowance.since), wide=True),
    ),
    tail=lambda allowance: f"allow/{_write(allowance.name)}",
)
