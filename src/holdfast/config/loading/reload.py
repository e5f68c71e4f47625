"""Reload: decides, field by field, what a running daemon takes over from a new configuration.

A field takes effect only if its documentation says so (`FieldDoc.on_reload`); all others keep their running values
until the daemon is restarted, also in a worker that restarts meanwhile. So no worker ever runs with half of a change
(C46: a new TTL with an old renewal interval ended the elector). The mixture is checked like a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.config.loading.resolve import SETTINGS, replaced, value_at
from holdfast.config.root import Config
from holdfast.config.schema.field import Field, Section, Shape, children

_OF_ROLE: Mapping[str, frozenset[str]] = {
    "server": frozenset({"server", "inventory", "status", "compaction"}),
    "agent": frozenset({"agent"}),
    "balancer": frozenset({"balancer"}),
}
"""Sections that only one daemon reads; it ignores those of the others."""


class FieldChange(msgspec.Struct, frozen=True):
    """A field that differs from the running configuration; the values are as the file has them."""

    path: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}: {self.old} → {self.new}"


class Reload(msgspec.Struct, frozen=True):
    """Answer to a reload."""

    applied: tuple[FieldChange, ...] = ()
    needs_restart: tuple[FieldChange, ...] = ()
    ignored: tuple[FieldChange, ...] = ()
    """Fields that another daemon reads."""
    unchanged: int = 0
    """Number of the other fields."""
    unconfirmed: tuple[str, ...] = ()
    """Workers that have not confirmed the new configuration yet."""


def takes_effect(field: Field) -> bool:  # protection: C46
    """True if a running daemon applies this field."""
    return field.doc.on_reload


def compare(running: Config, new: Config, role: str) -> tuple[Config, Reload]:
    """Return the configuration to run with from now on, and what it takes from the new one."""
    merged: Config = running
    applied: list[FieldChange] = []
    later: list[FieldChange] = []
    ignored: list[FieldChange] = []
    unchanged = 0
    for path, field in SETTINGS.items():
        old, value = value_at(running, path), value_at(new, path)
        if old == value:
            unchanged += 1
        elif not _reads(role, path):
            ignored += _changes(path, field, old, value)
        elif takes_effect(field):
            applied += _changes(path, field, old, value)
            merged = replaced(merged, path, value)
        else:
            later += _changes(path, field, old, value)
    return merged, Reload(tuple(applied), tuple(later), tuple(ignored), unchanged)


def mixture_problems(merged: Config) -> str:
    """Sentences about new values that do not fit running ones; empty if there are none."""
    return "\n".join(
        f"{path}: {sentence}; together with the values that need a restart: restart the daemon to apply all of them"
        for path, sentence in _conflicts(merged)
    )


def _conflicts(section: Section, path: str = "") -> Iterator[tuple[str, str]]:
    for conflict in section.conflicts():
        yield f"{path}{conflict.fields[0]}", conflict.sentence
    for name, below in children(section):
        yield from _conflicts(below, f"{path}{name}.")


def _reads(role: str, path: str) -> bool:
    """True if a daemon of this role reads the field. A role that is not listed, as in tests, reads all of them."""
    section = path.partition(".")[0]
    others = frozenset().union(*(own for one, own in _OF_ROLE.items() if one != role))
    return role not in _OF_ROLE or section not in others


def _changes(path: str, field: Field, old: Any, new: Any) -> Iterator[FieldChange]:
    """One change per field, and per member of a group."""
    if not field.is_group:
        yield FieldChange(path, field.show(old), field.show(new))
        return
    before, after = _members(path, field, old), _members(path, field, new)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield FieldChange(name, before.get(name, "none"), after.get(name, "none"))


def _members(path: str, field: Field, value: Any) -> Mapping[str, str]:
    """The members of a group, each on one line without what is at its default."""
    plain = field.plain(value)
    if not plain:
        return {}
    members = {f"{path}.{name}": one for name, one in plain.items()} if field.shape is Shape.NAMED else {path: plain}
    return {name: msgspec.json.encode(one).decode() for name, one in members.items()}
