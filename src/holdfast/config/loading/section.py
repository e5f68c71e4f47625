"""Reads sections from YAML nodes: fields, lists and groups, with every problem at its place.

A value passes its field's reader and its bounds. A field that cannot be read takes its default, and its path is noted
as unsound, so that later checks do not report what follows from it. A list or a group with a problem in it is unsound
as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET, UnsetType

from holdfast.config.loading.yaml import (
    Document,
    Fault,
    ListNode,
    Node,
    Position,
    ScalarNode,
    TableNode,
    UnusableNode,
    dotted,
    given_twice,
    parse,
)
from holdfast.config.schema.field import SECRET, Field, Section, Shape, children, fields
from holdfast.config.schema.scalars import Unfit, closest, name

_SECRET_WORDS = ("password", "passphrase", "secret", "token")


@dataclass
class Notes:
    """Problems and positions found while reading. Paths are absolute."""

    known: Mapping[str, Field] = field(default_factory=dict)
    """All settings by dotted path: what an unknown key may have been meant to be."""
    faults: list[Fault] = field(default_factory=list)
    places: dict[str, Position] = field(default_factory=dict)
    unsound: set[str] = field(default_factory=set)

    def refuse(self, path: str, node: Node, sentence: str) -> UnsetType:
        # An alias has its fault from the parser.
        if not isinstance(node, UnusableNode):
            self.faults.append(Fault(path, node.mark, sentence))
        self.unsound.add(path)
        return UNSET


def read_section(section: type[Section], node: Node, path: str, notes: Notes) -> Any:
    """The section, or `UNSET` when it is no section or lacks a required field."""
    if isinstance(node, ScalarNode) and node.is_empty:
        node = TableNode((), node.mark)  # every line below the key is a comment
    if not isinstance(node, TableNode):
        return notes.refuse(path, node, "is a section: write its fields below it, indented")
    notes.places.setdefault(path, node.mark)
    known, seen, values = fields(section), set[str](), dict[str, Any]()
    for key, below in node.entries:
        field_name = key.text.replace("-", "_")  # `flush-on-down` and `flush_on_down` are one field
        here = dotted(path, field_name)
        if field_name in seen:
            notes.refuse(here, key, given_twice(notes.places[here]))
        elif field_name not in known:
            notes.refuse(dotted(path, key.text), key, _unknown_key(key.text, path, section, notes.known))
        else:
            seen.add(field_name)
            notes.places[here] = key.mark
            value = read_field(known[field_name], below, here, notes)
            values |= {} if value is UNSET else {field_name: value}
    missing = [one for one, wanted in known.items() if wanted.required and one not in values]
    for one in missing:
        if one not in seen:
            notes.refuse(path, node, f"has no {one}: write one {known[one].noun}")
    return UNSET if missing else section(**values)


def read_field(wanted: Field, node: Node, path: str, notes: Notes) -> Any:
    """The value of a field, or `UNSET` when it is unsound."""
    before = len(notes.unsound)
    value = _read(wanted, node, path, notes)
    if len(notes.unsound) > before and (wanted.scalar or wanted.is_group):
        notes.unsound.add(path)
        return UNSET
    return value


def _read(wanted: Field, node: Node, path: str, notes: Notes) -> Any:
    if isinstance(node, ScalarNode) and node.is_null and wanted.optional:
        return None
    if isinstance(node, ScalarNode) and node.is_empty and wanted.is_group:
        return wanted.default
    if wanted.shape is Shape.NAMED:
        return _read_named(wanted, node, path, notes)
    if wanted.shape is Shape.LIST:
        return _read_list(wanted, node, path, notes)
    return _read_one(wanted, node, path, notes)


def _read_named(wanted: Field, node: Node, path: str, notes: Notes) -> Any:
    if not isinstance(node, TableNode):
        return notes.refuse(
            path, node, "holds sections by name: write NAME: below it, indented, and its fields below that"
        )
    values: dict[str, Any] = {}
    for key, below in node.entries:
        here = dotted(path, key.text)
        notes.places[here] = key.mark
        values[key.text] = _read_one(wanted, below, here, notes)
        try:
            name(key.text)
        except Unfit as unfit:
            notes.refuse(here, key, str(unfit))
    return values


def _read_list(wanted: Field, node: Node, path: str, notes: Notes) -> Any:
    if isinstance(node, ScalarNode) and wanted.scalar and (wanted.doc.alone or node.is_empty or node.is_null):
        return (_read_one(wanted, node, path, notes),)
    if not isinstance(node, ListNode):
        return notes.refuse(path, node, "is not a list: write [a, b], or each item below it after a dash")
    return tuple([_read_one(wanted, one, f"{path}[{index}]", notes) for index, one in enumerate(node.nodes)])


def _read_one(wanted: Field, node: Node, path: str, notes: Notes) -> Any:
    if wanted.section is not None:
        return read_section(wanted.section, node, path, notes)
    try:
        return _read_scalar(wanted, node)
    except Unfit as unfit:
        return notes.refuse(path, node, str(unfit))


def _read_scalar(wanted: Field, node: Node) -> Any:
    assert wanted.scalar is not None
    if not isinstance(node, ScalarNode):
        what = "a list" if isinstance(node, ListNode) else "a section"
        raise Unfit(f"is {what}: write one {wanted.noun}")
    if node.is_null or not node.text:
        none = ", or null for none" if wanted.optional else ""
        rest = "" if wanted.required else f", or remove it for the default ({wanted.show(wanted.default)})"
        raise Unfit(f"has no value: give it one{none}{rest}")
    value = wanted.scalar.read(node.text)
    wanted.check(value)
    return value


def _unknown_key(key: str, path: str, section: type[Section], known: Mapping[str, Field]) -> str:
    if refusal := secret_refusal(key, dotted(path, f"{key}_file"), known):
        return refusal
    if key in known and not path:
        parent, _, child = key.rpartition(".")
        return f"is written with a dot: write {child} below {parent}:, indented"
    near = closest(key, fields(section))
    here = dotted(path, f"{key}_file")
    elsewhere = [here] if here in known else [one for one in known if one.rpartition(".")[2] in (key, f"{key}_file")]
    in_group = path and not any(one.startswith(f"{path}.") for one in known)
    if not near and elsewhere and not in_group:
        near = f"; did you mean {' or '.join(elsewhere)}?"
    return f"is not a known {'field' if path else 'section'}{near}"


def secret_refusal(key: str, file_field: str, known: Mapping[str, Field]) -> str | None:
    """The error for an unknown key that looks like a secret. It never repeats the value."""
    if file_field in known and known[file_field].scalar is SECRET:
        return f"would be a secret in the configuration: write it into a file of its own, and name that in {file_field}"
    if any(word in key.lower() for word in _SECRET_WORDS):
        return "looks like a secret, and those are never written into the configuration: use a …_file field"
    return None


def document_of(wanted: Field, text: str) -> Document:
    """The text of a variable or flag as a node. A list is written `a, b` or `[a, b]`; all else is taken literally."""
    if wanted.shape is not Shape.LIST or not text.strip():
        return Document(ScalarNode(text))
    if not text.lstrip().startswith("["):
        return Document(ListNode(tuple(ScalarNode(item.strip()) for item in text.split(","))))
    return parse(text)


def unfit(section: Section) -> str | None:
    """The first problem of a section that did not come from a file, in one sentence; None when it is valid."""
    for field_name, wanted in fields(type(section)).items():
        value = getattr(section, field_name)
        if wanted.scalar is None or value is None:
            continue
        for item in value if wanted.shape is Shape.LIST else (value,):
            try:
                wanted.check(item)
                if isinstance(item, str):
                    wanted.scalar.read(item)
            except Unfit as sentence:
                return f"{field_name} {sentence}"
    conflict = next(section.conflicts(), None)
    if conflict is not None:
        return f"{conflict.fields[0]} {conflict.sentence}".lstrip()
    return next((f"{path}: {wrong}" for path, below in children(section) if (wrong := unfit(below))), None)
