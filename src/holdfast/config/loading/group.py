"""Groups: any number of named or listed things in the file, each read field by field like a section.

Everything wrong with every member is noted, with its place. A group in which something is wrong has no value at all:
whoever checks what refers to it must not complain about what follows from that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.config.loading.value import UNSOUND, Unsound, check_bounds, read
from holdfast.config.loading.yaml import Fault, ListNode, Node, Position, ScalarNode, TableNode, UnusableNode
from holdfast.config.schema.field import Group, GroupShape, Leaf, Section, children, groups, own_leaves
from holdfast.config.schema.scalars import Unfit, closest, name, printable


@dataclass
class GroupNotes:
    """What is found while reading a group: what is wrong, and where each field stands. Paths are absolute."""

    faults: list[Fault] = field(default_factory=list)
    places: dict[str, Position] = field(default_factory=dict)

    def complain(self, path: str, mark: Position, sentence: str) -> None:
        self.faults.append(Fault(path, mark, sentence))


def field_name(key: str) -> str:
    """People write `flush-on-down` and `flush_on_down`; both are the one field."""
    return key.replace("-", "_")


def read_group(group: Group, node: Node, path: str, notes: GroupNotes) -> Any:
    """The value of the whole group, or `UNSOUND` when anything in it is wrong."""
    if isinstance(node, UnusableNode):
        return UNSOUND
    if isinstance(node, ScalarNode) and (node.is_empty or (node.is_null and group.shape is GroupShape.OPTIONAL)):
        return group.default
    if group.shape is GroupShape.OPTIONAL:
        return read_member(group.of, node, path, notes)
    return _listed(group, node, path, notes) if group.shape is GroupShape.LIST else _named(group, node, path, notes)


def _named(group: Group, node: Node, path: str, notes: GroupNotes) -> Any:
    if not isinstance(node, TableNode):
        notes.complain(
            path, node.mark, "holds things by name: write NAME: below it, indented, and its fields below that"
        )
        return UNSOUND
    read: dict[str, Any] = {}
    for key, below in node.entries:
        here = f"{path}.{printable(key.text)}"
        notes.places[here] = key.mark
        try:
            read[name(key.text)] = read_member(group.of, below, here, notes)
        except Unfit as unfit:
            notes.complain(here, key.mark, str(unfit))
            read[key.text] = UNSOUND
    return UNSOUND if UNSOUND in read.values() else read


def _listed(group: Group, node: Node, path: str, notes: GroupNotes) -> Any:
    if not isinstance(node, ListNode):
        notes.complain(path, node.mark, "is not a list: write each entry below it, after a dash")
        return UNSOUND
    read = [read_member(group.of, below, f"{path}[{index}]", notes) for index, below in enumerate(node.nodes)]
    return UNSOUND if UNSOUND in read else tuple(read)


def read_member(section: type[Section], node: Node, path: str, notes: GroupNotes) -> Section | Unsound:
    """One member of a group."""
    if isinstance(node, UnusableNode):
        return UNSOUND
    if isinstance(node, ScalarNode) and node.is_empty:
        node = TableNode((), node.mark)
    if not isinstance(node, TableNode):
        notes.complain(path, node.mark, "has fields: write them below it, indented")
        return UNSOUND
    notes.places.setdefault(path, node.mark)
    return _Member(section, path, notes).read(node)


class _Member:
    def __init__(self, section: type[Section], path: str, notes: GroupNotes) -> None:
        self._section = section
        self._path = path
        self._notes = notes
        self._leaves = own_leaves(section)
        self._groups = groups(section)

    def read(self, table: TableNode) -> Section | Unsound:
        before = len(self._notes.faults)
        values: dict[str, Any] = {}
        for key, node in table.entries:
            self._take(key, node, values)
        for missing in [leaf for leaf in self._leaves.values() if leaf.required and leaf.name not in values]:
            self._notes.complain(self._path, table.mark, f"has no {missing.name}: write one {missing.kind.noun}")
        if len(self._notes.faults) > before or UNSOUND in values.values():
            return UNSOUND
        return self._section(**values)

    def _take(self, key: ScalarNode, node: Node, values: dict[str, Any]) -> None:
        field = field_name(key.text)
        here = f"{self._path}.{printable(field)}"
        if field in values:
            self._notes.complain(
                here, key.mark, f"is given twice, first on line {self._notes.places[here].line}: remove one"
            )
            return
        if field not in self._leaves and field not in self._groups:
            known = [*self._leaves, *self._groups]
            self._notes.complain(here, key.mark, f"is not known here{closest(field, known)}")
            return
        self._notes.places[here] = key.mark
        if field in self._groups:
            values[field] = read_group(self._groups[field], node, here, self._notes)
        else:
            values[field] = self._leaf(self._leaves[field], node, here)

    def _leaf(self, leaf: Leaf, node: Node, path: str) -> Any:
        faults: list[Fault] = []
        value = read(leaf, node, faults)
        for fault in faults:
            self._notes.complain(path + fault.path, fault.mark, fault.sentence)
        return value


def plain(section: Section) -> dict[str, Any]:
    """A member of a group as texts and plain values, in the form of the file, without what is at its default."""
    shown: dict[str, Any] = {}
    for name_, leaf in own_leaves(type(section)).items():
        value = getattr(section, name_)
        if value != leaf.default:
            shown[name_] = leaf.plain(value)
    for name_, group in groups(type(section)).items():
        value = getattr(section, name_)
        if value != group.default:
            shown[name_] = plain_group(group, value)
    return shown


def plain_group(group: Group, value: Any) -> Any:
    if group.shape is GroupShape.NAMED:
        return {key: plain(member) for key, member in value.items()}
    if group.shape is GroupShape.LIST:
        return [plain(member) for member in value]
    return None if value is None else plain(value)


def unfit(section: Section) -> str | None:
    """What is wrong with a section that did not come from a file, in one sentence; None: nothing."""
    for name_, leaf in own_leaves(type(section)).items():
        value = getattr(section, name_)
        for item in () if value is None else value if leaf.many else (value,):
            try:
                check_bounds(leaf, item)
                if isinstance(item, str):
                    leaf.kind.read(item)
            except Unfit as sentence:
                return f"{name_} {sentence}"
    conflict = next(section.conflicts(), None)
    if conflict is not None:
        return f"{conflict.fields[0]} {conflict.sentence}".lstrip()
    return next((f"{path}: {wrong}" for path, below in children(section) if (wrong := unfit(below))), None)
