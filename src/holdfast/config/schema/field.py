"""Fields of a section: kind, default, bounds and documentation of each, derived from its annotation.

A section is a frozen struct. Each field carries a `FieldDoc` and, where the plain type does not say enough, a
`ScalarKind`. `fields` derives everything else from that: what the file may hold, environment variables, the reference
page, and how a value is written. The settings of a daemon all have defaults, so an empty file is a complete one.

A field holds values or sections: one, a list, or any number by name. A section that is always there (`log`) is part of
the tree of settings. Sections that come in any number (`frontends.<name>`), or that may be missing (`announce`), are a
group: the file alone can set them, and their fields may be required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from holdfast.config.schema import scalars


class FieldDoc(msgspec.Struct, frozen=True):
    """Documentation of one field: what it decides, and what goes wrong when it is too small or too big.

    `least` and `most` are inclusive bounds. The error for a value outside them names the consequence. They are not
    constraints of msgspec: those know no durations, and a worker could not restore what a version with wider bounds
    wrote.
    """

    what: str
    small: str = ""
    big: str = ""
    least: Any = None
    most: Any = None
    alone: bool = False
    """A single value may stand for a list of one."""
    on_reload: bool = False
    """A reload applies it to the running daemon; otherwise the daemon must be restarted."""


@dataclass(frozen=True, slots=True)
class ScalarKind:
    """One way to read a scalar. `read` raises `scalars.Unfit`: the rest of a sentence that begins with the field."""

    noun: str
    read: Callable[[str], object]
    show: Callable[[Any], str] = str
    quoted: bool = False


SECRET = ScalarKind(
    "absolute path of a file that other users cannot read, or `credential:NAME`", scalars.file, quoted=True
)

Size = Annotated[int, ScalarKind("size", scalars.size, scalars.show_size)]
Name = Annotated[str, ScalarKind("name", scalars.name, quoted=True)]
Folder = Annotated[str, ScalarKind("absolute path", scalars.path, quoted=True)]
File = Annotated[str, ScalarKind("absolute path, or `credential:NAME`", scalars.file, quoted=True)]
SecretFile = Annotated[str, SECRET]
Endpoint = Annotated[str, ScalarKind("http or https URL", scalars.endpoint, quoted=True)]
Address = Annotated[str, ScalarKind("IPv4 or IPv6 address", scalars.address, quoted=True)]
ListenOrOff = Annotated[str, ScalarKind("IP:PORT, or `off`", scalars.listen_or_off, quoted=True)]
Listen = Annotated[str, ScalarKind("IP:PORT, `default` or `off`", scalars.listen, quoted=True)]
PrefixText = Annotated[str, ScalarKind("IPv4 or IPv6 prefix", scalars.prefix, quoted=True)]
Regex = Annotated[str, ScalarKind("regular expression in the syntax of RE2", scalars.regex, quoted=True)]

_PLAIN: dict[object, ScalarKind] = {
    str: ScalarKind("text", scalars.text, quoted=True),
    int: ScalarKind("whole number", scalars.integer),
    bool: ScalarKind("true or false", scalars.boolean, scalars.show_boolean),
    timedelta: ScalarKind("duration", scalars.duration, scalars.show_duration),
}


def seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


class FieldConflict(msgspec.Struct, frozen=True):
    """Fields that contradict each other. `fields` names all of them, the one to blame first; "" is the section."""

    fields: tuple[str, ...]
    sentence: str


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One concern of the configuration.

    Unknown fields are refused where the file is read, not here: a worker of the next version must be able to restore
    what a supervisor of this version wrote, and the other way round.
    """

    def conflicts(self) -> Iterator[FieldConflict]:
        """Yield contradictions between fields that are valid one by one."""
        return iter(())

    def warnings(self) -> Iterator[FieldConflict]:
        """Yield what is valid, and probably not meant."""
        return iter(())


class Shape(Enum):
    ONE = ""
    LIST = "[]"
    NAMED = ".NAME"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of one section. Either `scalar` or `section` says what it holds."""

    doc: FieldDoc
    default: Any
    shape: Shape
    optional: bool
    scalar: ScalarKind | None
    section: type[Section] | None

    @property
    def required(self) -> bool:
        return self.default is msgspec.NODEFAULT

    @property
    def is_group(self) -> bool:
        return self.section is not None and (self.optional or self.shape is not Shape.ONE)

    @property
    def noun(self) -> str:
        return self.scalar.noun if self.scalar else "section"

    def show(self, value: Any) -> str:
        """The value as the file has it."""
        if value is None:
            return "null"
        if self.shape is Shape.LIST:
            return "[" + ", ".join(self._show(item) for item in value) + "]"
        return self._show(value)

    def _show(self, value: Any) -> str:
        assert self.scalar is not None
        shown = self.scalar.show(value)
        return msgspec.json.encode(shown).decode() if self.scalar.quoted else shown

    def plain(self, value: Any) -> Any:
        """The value for JSON: durations and sizes with their units, sections without what is at its default."""
        if value is None:
            return None
        if self.shape is Shape.LIST:
            return [self._plain(item) for item in value]
        if self.shape is Shape.NAMED:
            return {name: self._plain(item) for name, item in value.items()}
        return self._plain(value)

    def _plain(self, value: Any) -> Any:
        if self.section is None:
            assert self.scalar is not None
            return value if self.scalar.show is str or isinstance(value, bool) else self.scalar.show(value)
        pairs = ((name, field, getattr(value, name)) for name, field in fields(self.section).items())
        return {name: field.plain(held) for name, field, held in pairs if held != field.default}

    def check(self, value: Any) -> None:
        """Raise `Unfit` for a value outside the bounds, with the consequence that it would have."""
        doc = self.doc
        if doc.least is not None and value < doc.least:
            raise scalars.Unfit(f"is {self.show(value)}, less than {self.show(doc.least)}: {doc.small}")
        if doc.most is not None and value > doc.most:
            raise scalars.Unfit(f"is {self.show(value)}, more than {self.show(doc.most)}: {doc.big}")


@cache
def fields(section: type[Section]) -> Mapping[str, Field]:
    """The fields of a section by name, in the order in which they are declared."""
    hints = get_type_hints(section, include_extras=True)
    return {info.name: _field(info, hints[info.name]) for info in msgspec.structs.fields(section)}


def _field(info: msgspec.structs.FieldInfo, hint: object) -> Field:
    bare, notes = _unwrap(hint)
    doc = next((note for note in notes if isinstance(note, FieldDoc)), FieldDoc(""))
    optional = NoneType in get_args(bare)
    if optional:
        (inner,) = (choice for choice in get_args(bare) if choice is not NoneType)
        bare, notes = _unwrap(inner)
    shape = {tuple: Shape.LIST, Mapping: Shape.NAMED}.get(get_origin(bare), Shape.ONE)
    if shape is not Shape.ONE:
        bare, notes = _unwrap(get_args(bare)[0 if shape is Shape.LIST else 1])
    default = info.default if info.default_factory is msgspec.NODEFAULT else info.default_factory()
    if isinstance(bare, type) and issubclass(bare, Section):
        field = Field(doc, default, shape, optional, None, bare)
    else:
        field = Field(doc, default, shape, optional, _scalar_kind(bare, notes), None)
    assert doc.what or (field.section and not field.is_group), f"{info.name} has no documentation"
    return field


def _unwrap(hint: Any) -> tuple[Any, tuple[object, ...]]:
    """Split `Annotated[int, …]` into the type and its notes."""
    return (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())


def _scalar_kind(bare: Any, notes: tuple[object, ...]) -> ScalarKind:
    kind = next((note for note in notes if isinstance(note, ScalarKind)), None)
    if kind is None and get_origin(bare) is Literal:
        options = get_args(bare)
        noun = " or ".join(f"`{option}`" for option in options)
        return ScalarKind(noun, lambda given: scalars.choice(given, options))
    return kind or _PLAIN[bare]


def settings(section: type[Section], path: str = "") -> Iterator[tuple[str, Field]]:
    """Every value and every group below a section, with dotted paths: its own fields first, then nested sections."""
    nested = {name: field for name, field in fields(section).items() if field.section and not field.is_group}
    for name, field in fields(section).items():
        if name not in nested:
            assert not field.required, f"{path}{name} has no default"
            yield f"{path}{name}", field
    for name, field in nested.items():
        assert field.section is not None
        yield from settings(field.section, f"{path}{name}.")


def children(section: Section) -> Iterator[tuple[str, Section]]:
    """The sections directly below a section, with their paths."""
    for name, field in fields(type(section)).items():
        value = getattr(section, name)
        if field.section is None or value is None:
            continue
        if field.shape is Shape.NAMED:
            yield from ((f"{name}.{key}", member) for key, member in value.items())
        elif field.shape is Shape.LIST:
            yield from ((f"{name}[{index}]", member) for index, member in enumerate(value))
        else:
            yield name, value
