"""Precedence: which of flag, environment, file and default each value comes from.

Promises: every value of the result has an origin; every layer is checked whole, also where another overrides it; all
problems come at once, in the order of the file; and nothing that anybody writes makes `resolve` raise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from holdfast.config.loading.group import GroupNotes, field_name, read_group
from holdfast.config.loading.origin import ConfigProblem, ConfigRejected, Layer, Origin, reject
from holdfast.config.loading.value import UNSOUND, node_of, read
from holdfast.config.loading.yaml import (
    Document,
    Fault,
    Node,
    Position,
    ScalarNode,
    TableNode,
    UnusableNode,
    decode,
    parse,
)
from holdfast.config.root import Config
from holdfast.config.schema.field import (
    ENVIRONMENT_PREFIX,
    SECRET,
    Group,
    Leaf,
    Section,
    children,
    groups,
    leaves,
    sections,
)
from holdfast.config.schema.scalars import closest, nearest, printable

# Variables that the command line reads for itself.
RESERVED = ("HOLDFAST_CONFIG", "HOLDFAST_ETCD", "HOLDFAST_SERVER", "HOLDFAST_TOKEN")

_SECRET_WORDS = ("password", "passphrase", "secret", "token")

LEAVES: Mapping[str, Leaf] = {leaf.name: leaf for leaf in leaves(Config)}
GROUPS: Mapping[tuple[str, ...], Group] = {
    (section, name): group for section, kind in sections(Config).items() for name, group in groups(kind).items()
}
VARIABLES: Mapping[str, Leaf] = {leaf.variable: leaf for leaf in LEAVES.values()}


class ConfigFile(msgspec.Struct, frozen=True):
    """The file: its name as people know it, and what is in it."""

    name: str
    data: bytes


class FlagValue(msgspec.Struct, frozen=True):
    """A value from the command line: the flag's own name, the field that it sets, and what was written."""

    name: str
    path: str
    value: str


class Loaded(msgspec.Struct, frozen=True):
    """A sound configuration. `origins` has one entry for every field, by dotted path, and for what groups hold."""

    config: Config
    origins: Mapping[str, Origin]
    file: str | None = None


def resolve(
    source: ConfigFile | None, environ: Mapping[str, str], flags: Sequence[FlagValue] = ()
) -> Loaded | ConfigRejected:
    """The effective configuration, or everything that is wrong with it."""
    sheet = _Sheet()
    if source is not None:
        _take_file(source, sheet)
    _take_environment(environ, sheet)
    _take_flags(flags, sheet)
    config = cast("Config", _build(Config, sheet.values))
    sheet.problems.extend(_conflicts(config, sheet))
    if sheet.problems:
        return reject(sheet.problems)
    return Loaded(config, sheet.origins, source.name if source else None)


class _Sheet:
    """What has been found so far: per field its value and origin, and all problems."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: leaf.default for name, leaf in LEAVES.items()}
        self.values |= {".".join(path): group.default for path, group in GROUPS.items()}
        self.origins: dict[str, Origin] = dict.fromkeys(LEAVES, Origin())
        self.unsound: set[str] = set()
        self.problems: list[ConfigProblem] = []

    def complain(self, origin: Origin, path: str, sentence: str) -> None:
        self.problems.append(ConfigProblem(origin, path, sentence))

    def note(self, leaf: Leaf, value: object, origin: Origin) -> None:
        if value is UNSOUND:
            self.unsound.add(leaf.name)
        else:
            self.values[leaf.name] = value
            self.origins[leaf.name] = origin


def _take_file(source: ConfigFile, sheet: _Sheet) -> None:
    text = decode(source.data)
    document = parse(text) if isinstance(text, str) else Document(None, (text,))
    for fault in document.faults:
        sheet.complain(_in_file(source, fault.mark), fault.path, fault.sentence)
    root = document.root
    if isinstance(root, TableNode):
        _take_section(source, Config, root, (), sheet)
    elif root is not None and not (isinstance(root, ScalarNode) and root.is_empty):
        known = ", ".join(sections(Config))
        sheet.complain(
            _in_file(source, root.mark), "", f"does not begin with a section: write one of {known}, and a colon"
        )


def _in_file(source: ConfigFile, mark: Position) -> Origin:
    return Origin(Layer.FILE, printable(source.name), mark.line, mark.column)


def _take_section(
    source: ConfigFile, section: type[Section], table: TableNode, path: tuple[str, ...], sheet: _Sheet
) -> None:
    nested = sections(section)
    seen: dict[str, Position] = {}
    for key, node in table.entries:
        field = field_name(key.text)
        name = ".".join((*path, field))
        if field in seen:
            sentence = f"is given twice, first on line {seen[field].line}: remove one"
            sheet.complain(_in_file(source, key.mark), printable(name), sentence)
            continue
        seen[field] = key.mark
        if (*path, field) in GROUPS:
            _take_group(source, (*path, field), node, sheet)
        elif field in nested and isinstance(node, TableNode):
            _take_section(source, nested[field], node, (*path, field), sheet)
        elif field in nested:
            # A section whose every line is a comment is an empty section.
            if not (isinstance(node, UnusableNode) or (isinstance(node, ScalarNode) and node.is_empty)):
                sheet.complain(_in_file(source, node.mark), name, "is a section: write its fields below it, indented")
        elif field in section.__struct_fields__:
            faults: list[Fault] = []
            value = read(LEAVES[name], node, faults)
            for fault in faults:
                sheet.complain(_in_file(source, fault.mark), name + fault.path, fault.sentence)
            sheet.note(LEAVES[name], value, _in_file(source, key.mark))
        else:
            written = ".".join((*path, key.text))
            sheet.complain(_in_file(source, key.mark), printable(written), _unknown_key(key.text, path, section))


def _take_group(source: ConfigFile, path: tuple[str, ...], node: Node, sheet: _Sheet) -> None:
    name, notes = ".".join(path), GroupNotes()
    value = read_group(GROUPS[path], node, name, notes)
    for fault in notes.faults:
        sheet.complain(_in_file(source, fault.mark), fault.path, fault.sentence)
    sheet.origins |= {place: _in_file(source, mark) for place, mark in notes.places.items()}
    if value is UNSOUND:
        sheet.unsound.add(name)
    else:
        sheet.values[name] = value


def _unknown_key(key: str, path: tuple[str, ...], section: type[Section]) -> str:
    if refusal := _secret(key, ".".join((*path, f"{key}_file"))):
        return refusal
    if key in LEAVES and not path:
        section_name, _, field = key.rpartition(".")
        return f"is written with a dot: write {field} below {section_name}:, indented"
    where = f"in section {'.'.join(path)}" if path else "as a section"
    near = closest(key, section.__struct_fields__)
    elsewhere = [name for name, leaf in LEAVES.items() if leaf.path[-1] in (key, f"{key}_file")]
    if not near and elsewhere:
        near = f"; did you mean {' or '.join(elsewhere)}?"
    return f"is not known {where}{near}"


def _secret(key: str, file_field: str) -> str | None:
    if file_field in LEAVES and LEAVES[file_field].kind is SECRET:
        return f"would be a secret in the configuration: write it into a file of its own, and name that in {file_field}"
    if any(word in key.lower() for word in _SECRET_WORDS):
        return "looks like a secret, and those are never written into the configuration: use a …_file field"
    return None


def _take_environment(environ: Mapping[str, str], sheet: _Sheet) -> None:
    for variable in sorted(name for name in environ if name.startswith(ENVIRONMENT_PREFIX) and name not in RESERVED):
        origin = Origin(Layer.ENVIRONMENT, printable(variable))
        if leaf := VARIABLES.get(variable):
            _take_text(leaf, environ[variable], origin, sheet)
        else:
            sheet.complain(origin, "", _unknown_variable(variable))


def _unknown_variable(variable: str) -> str:
    leaf = VARIABLES.get(f"{variable}_FILE")
    if leaf and (refusal := _secret(leaf.path[-1], leaf.name)):
        return refusal
    # The common prefix would make every name look like every other.
    bare = {name.removeprefix(ENVIRONMENT_PREFIX): name for name in (*VARIABLES, *RESERVED)}
    match = nearest(variable.removeprefix(ENVIRONMENT_PREFIX), bare)
    return f"is not known: unset it{f'; did you mean {bare[match]}?' if match else ''}"


def _take_flags(flags: Sequence[FlagValue], sheet: _Sheet) -> None:
    for flag in flags:
        origin = Origin(Layer.FLAG, printable(flag.name))
        if leaf := LEAVES.get(flag.path):
            _take_text(leaf, flag.value, origin, sheet)
        else:
            sheet.complain(origin, printable(flag.path), _unknown_field(flag.path))


def _unknown_field(path: str) -> str:
    section, _, field = path.rpartition(".")
    if refusal := _secret(field, f"{path}_file"):
        return refusal
    # Inside a section that exists only its own fields are meant; the section's name would make all of them look alike.
    siblings = {leaf.path[-1]: name for name, leaf in LEAVES.items() if name.rpartition(".")[0] == section}
    match = siblings.get(nearest(field, siblings) or "") if siblings else nearest(path, LEAVES)
    return f"is not a known field{f'; did you mean {match}?' if match else ''}"


def _take_text(leaf: Leaf, text: str, origin: Origin, sheet: _Sheet) -> None:
    node, found = node_of(leaf, text)
    faults = list(found)
    value = UNSOUND if found else read(leaf, node, faults)
    for fault in faults:
        sheet.complain(origin, leaf.name + fault.path, fault.sentence)
    sheet.note(leaf, value, origin)


def _build(section: type[Section], values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Section:
    nested = sections(section)
    return section(
        **{
            field: _build(nested[field], values, (*path, field))
            if field in nested
            else values[".".join((*path, field))]
            for field in section.__struct_fields__
        }
    )


def _blame(names: list[str], sentence: str, sheet: _Sheet) -> ConfigProblem:
    """The problem at a place that somebody wrote: nobody can mend a default."""
    first = names[0]
    written = next((name for name in names if name in sheet.origins and sheet.origins[name].layer), first)
    if written != first and first in LEAVES:
        sentence = f"does not fit {first} ({LEAVES[first].show(sheet.values[first])}), which {sentence}"
    return ConfigProblem(sheet.origins.get(written, Origin()), written, sentence)


def _conflicts(section: Section, sheet: _Sheet, path: tuple[str, ...] = ()) -> Iterator[ConfigProblem]:
    for conflict in section.conflicts():
        names = [".".join(filter(None, (*path, field))) for field in conflict.fields]
        # A field that could not be read has its own problem already; what follows from it is noise.
        if sheet.unsound.isdisjoint(names):
            yield _blame(names, conflict.sentence, sheet)
    for field, below in children(section):
        yield from _conflicts(below, sheet, (*path, field))
