"""What a section of the configuration is made of: fields that each know their kind, default, bounds and documentation.

A section is a frozen struct; its fields carry an `FieldDoc` and, where the plain type does not say enough, a
`ScalarKind`. From
that alone `leaves` derives everything else: what the file may hold, the names of environment variables, the reference
page, and how a value is shown. Every field has a default, so an empty configuration is a complete one.

Things that there can be any number of (`frontends.<name>`) are a `Group`: a field whose type is a mapping or a tuple of
sections, or one section that may be missing. They come from the file alone, and their fields may be required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from holdfast.config.schema import scalars as text

ENVIRONMENT_PREFIX = "HOLDFAST_"


class FieldDoc(msgspec.Struct, frozen=True):
    """The documentation of one field: what it decides, and what goes wrong when it is too small or too big.

    `least` and `most` are inclusive bounds. A value outside them is refused with the matching consequence, so the error
    says why and not only that.
    """

    what: str
    small: str = ""
    big: str = ""
    least: Any = None
    most: Any = None
    alone: bool = False
    """A single value may stand for a list of one."""


@dataclass(frozen=True, slots=True)
class ScalarKind:
    """One way to read a scalar. `read` raises `text.Unfit` with the rest of a sentence that begins with the field."""

    noun: str
    read: Callable[[str], object]
    show: Callable[[Any], str] = str
    quoted: bool = False


TEXT = ScalarKind("text", text.word, quoted=True)
WHOLE = ScalarKind("whole number", text.whole)
TRUTH = ScalarKind("true or false", text.truth, text.show_truth)
DURATION = ScalarKind("duration", text.duration, text.show_duration)
SIZE = ScalarKind("size", text.size, text.show_size)
NAME = ScalarKind("name", text.name, quoted=True)
FOLDER = ScalarKind("absolute path", text.path, quoted=True)
FILE = ScalarKind("absolute path, or `credential:NAME`", text.file, quoted=True)
SECRET = ScalarKind("absolute path of a file that not everybody can read, or `credential:NAME`", text.file, quoted=True)
ENDPOINT = ScalarKind("http or https URL", text.endpoint, quoted=True)
ADDRESS = ScalarKind("IPv4 or IPv6 address", text.address, quoted=True)
REGEX = ScalarKind("regular expression", text.regex, quoted=True)

Size = Annotated[int, SIZE]
Name = Annotated[str, NAME]
Folder = Annotated[str, FOLDER]
File = Annotated[str, FILE]
SecretFile = Annotated[str, SECRET]
Endpoint = Annotated[str, ENDPOINT]
Address = Annotated[str, ADDRESS]
Regex = Annotated[str, REGEX]

_PLAIN: dict[object, ScalarKind] = {str: TEXT, int: WHOLE, bool: TRUTH, timedelta: DURATION}


class FieldConflict(msgspec.Struct, frozen=True):
    """Fields that do not fit each other. `fields` names all that matter, the one to blame first; "": the whole."""

    fields: tuple[str, ...]
    sentence: str


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One concern of the configuration.

    Unknown fields are refused where people write them, not here: a worker of the next version must be able to restore
    what a supervisor of this version wrote, and the other way round.
    """

    def conflicts(self) -> Iterator[FieldConflict]:
        """What does not fit together, although each field by itself is sound."""
        return iter(())


@dataclass(frozen=True, slots=True)
class Leaf:
    """One field of one section, with everything that its type says about it."""

    path: tuple[str, ...]
    kind: ScalarKind
    many: bool
    optional: bool
    default: object
    about: FieldDoc
    type: object

    @property
    def name(self) -> str:
        return ".".join(self.path)

    @property
    def required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + "_".join(self.path).upper()

    def show(self, value: Any) -> str:
        """The value as it is written in the file."""
        if value is None:
            return "null"
        if self.many:
            return "[" + ", ".join(self._scalar(item) for item in value) + "]"
        return self._scalar(value)

    def plain(self, value: Any) -> object:
        """The value for JSON: durations and sizes with their units, as in the file; what JSON has itself stays so."""
        if self.many and value is not None:
            return [self._plain(item) for item in value]
        return self._plain(value)

    def _plain(self, value: Any) -> object:
        ready = value is None or isinstance(value, bool | str) or self.kind.show is str
        return value if ready else self.kind.show(value)

    def _scalar(self, value: Any) -> str:
        shown = self.kind.show(value)
        return msgspec.json.encode(shown).decode() if self.kind.quoted else shown


@cache
def sections(section: type[Section]) -> dict[str, type[Section]]:
    """The fields of a section that are sections themselves."""
    hints = get_type_hints(section)
    return {name: hint for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, Section)}


class GroupShape(Enum):
    """How many there may be of what a group holds."""

    NAMED = "named"
    LIST = "list"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Group:
    """A field that holds any number of sections: by name, in a list, or one that may be missing."""

    shape: GroupShape
    of: type[Section]
    about: FieldDoc
    default: Any


@cache
def groups(section: type[Section]) -> dict[str, Group]:
    """The fields of a section that are groups."""
    hints = get_type_hints(section, include_extras=True)
    found = ((field, _group(hints[field.name])) for field in msgspec.structs.fields(section))
    return {
        field.name: Group(*shape, _about(field.name, hints[field.name]), _default(field))
        for field, shape in found
        if shape is not None
    }


def _default(field: msgspec.structs.FieldInfo) -> Any:
    made = field.default_factory
    return field.default if made is msgspec.NODEFAULT else made()


def _group(hint: object) -> tuple[GroupShape, type[Section]] | None:
    bare = _bare(hint)
    inner, optional = _without_none(bare)
    if optional and _is_section(inner):
        return GroupShape.OPTIONAL, cast("type[Section]", inner)
    choices = get_args(bare)
    if get_origin(bare) is Mapping and _is_section(choices[1]):
        return GroupShape.NAMED, choices[1]
    return (GroupShape.LIST, choices[0]) if get_origin(bare) is tuple and _is_section(choices[0]) else None


def _is_section(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, Section)


def children(section: Section) -> Iterator[tuple[str, Section]]:
    """The sections below a section with their paths: its own, and those in its groups."""
    for name in sections(type(section)):
        yield name, getattr(section, name)
    for name, group in groups(type(section)).items():
        yield from members(name, group, getattr(section, name))


def members(name: str, group: Group, value: Any) -> Iterator[tuple[str, Section]]:
    """What is in a group, each with its path."""
    if group.shape is GroupShape.NAMED:
        yield from ((f"{name}.{key}", member) for key, member in value.items())
    elif group.shape is GroupShape.LIST:
        yield from ((f"{name}[{index}]", member) for index, member in enumerate(value))
    elif value is not None:
        yield name, value


def leaves(section: type[Section], path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every field below a section that has one value, in the order in which they are declared."""
    for leaf in own_leaves(section, path).values():
        assert not leaf.required, f"{leaf.name} has no default"
        yield leaf
    for name, below in sections(section).items():
        yield from leaves(below, (*path, name))


@cache
def own_leaves(section: type[Section], path: tuple[str, ...] = ()) -> dict[str, Leaf]:
    """The fields of a section itself: neither sections nor groups."""
    hints = get_type_hints(section, include_extras=True)
    others = {*sections(section), *groups(section)}
    return {
        field.name: _leaf((*path, field.name), hints[field.name], field.default)
        for field in msgspec.structs.fields(section)
        if field.name not in others
    }


def _about(name: str, hint: object) -> FieldDoc:
    about = next((note for note in _notes(hint) if isinstance(note, FieldDoc)), None)
    assert about is not None, f"{name} has no documentation"
    return about


def _leaf(path: tuple[str, ...], hint: object, default: object) -> Leaf:
    about = _about(".".join(path), hint)
    inner, optional = _without_none(hint)
    many = get_origin(_bare(inner)) is tuple
    item = get_args(_bare(inner))[0] if many else inner
    return Leaf(path, _kind(item), many, optional, default, about, hint)


def _bare(hint: object) -> object:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _notes(hint: object) -> tuple[object, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _without_none(hint: object) -> tuple[object, bool]:
    bare = _bare(hint)
    if get_origin(bare) not in (Union, UnionType) or NoneType not in get_args(bare):
        return hint, False
    (inner,) = (choice for choice in get_args(bare) if choice is not NoneType)
    return inner, True


def _kind(hint: object) -> ScalarKind:
    for note in _notes(hint):
        if isinstance(note, ScalarKind):
            return note
    bare = _bare(hint)
    if get_origin(bare) is Literal:
        return choice(get_args(bare))
    return _PLAIN[bare]


def choice(options: tuple[str, ...]) -> ScalarKind:
    """A kind that allows these words and no others."""
    return ScalarKind(" or ".join(f"`{option}`" for option in options), lambda given: text.choice(given, options))
