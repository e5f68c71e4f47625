"""YAML as text with places: what stands where, before anybody asks what it means.

Scalars stay text, so nothing is guessed from their looks. Refused, each with a sentence at its place: a key given
twice, anchors, aliases and merge keys (a small file can therefore not become a large one), tags, several documents, and
nesting deeper than any configuration needs. Any text at all gives a `Document`; nothing is raised.

Parser events are used rather than composed nodes: a node no longer shows whether its tag was written or guessed, and
composing recurses before the depth can be limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from holdfast.config.schema.scalars import printable

LARGEST = 256 * 1024
DEEPEST = 16


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a text, counted from 1. Line 0 is "the text as a whole"."""

    line: int = 0
    column: int = 0


WHOLE_TEXT = Position()


@dataclass(frozen=True, slots=True)
class ScalarNode:
    text: str
    plain: bool = True
    mark: Position = WHOLE_TEXT

    @property
    def is_empty(self) -> bool:
        return self.plain and not self.text

    @property
    def is_null(self) -> bool:
        return self.plain and self.text == "null"


@dataclass(frozen=True, slots=True)
class ListNode:
    nodes: tuple[Node, ...]
    mark: Position = WHOLE_TEXT


@dataclass(frozen=True, slots=True)
class TableNode:
    entries: tuple[tuple[ScalarNode, Node], ...]
    mark: Position = WHOLE_TEXT


@dataclass(frozen=True, slots=True)
class UnusableNode:
    """What stands in place of an alias. The document's faults say what is wrong with it, nobody else needs to."""

    mark: Position = WHOLE_TEXT


Node = ScalarNode | ListNode | TableNode | UnusableNode


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong at one place. `path` is relative to where the text belongs."""

    path: str
    mark: Position
    sentence: str


@dataclass(frozen=True, slots=True)
class Document:
    """The root of a text, `None` where it has none, and everything wrong with its form."""

    root: Node | None
    faults: tuple[Fault, ...] = ()


class _Unreadable(Exception):
    def __init__(self, mark: Position, sentence: str) -> None:
        self.fault = Fault("", mark, sentence)


def decode(data: bytes) -> str | Fault:
    """The text of a file, or why it has none."""
    if len(data) > LARGEST:
        return Fault("", WHOLE_TEXT, f"is larger than {LARGEST // 1024} KiB, which no configuration needs")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Fault("", _place(data[: error.start].decode("utf-8", "replace")), "is not UTF-8: save the file as UTF-8")
    if not text.strip():
        # A file that was cut to nothing by a full disk must not pass for "all defaults" at the next reload.
        return Fault("", WHOLE_TEXT, "is empty: for the defaults alone, write a comment into it or remove it")
    return text


def parse(text: str) -> Document:
    """Reads one YAML document."""
    builder = _Builder(text)
    try:
        root = builder.document()
    except _Unreadable as stop:
        return Document(None, (*builder.faults, stop.fault))
    except yaml.reader.ReaderError as error:
        fault = Fault("", _place(text[: error.position]), "holds a control character, which YAML does not allow")
        return Document(None, (*builder.faults, fault))
    except yaml.MarkedYAMLError as error:
        return Document(None, (*builder.faults, _syntax(error)))
    except (ValueError, OverflowError):
        # PyYAML lets these out of `"\UFFFFFFFF"` and of a version directive with thousands of digits.
        fault = Fault("", builder.mark, "is not YAML: after this there is a number or an escape that is too large")
        return Document(None, (*builder.faults, fault))
    return Document(root, tuple(builder.faults))


def _syntax(error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    place = Position(mark.line + 1, mark.column + 1) if mark else WHOLE_TEXT
    problem = error.problem or error.context or "it cannot be understood"
    if "\\t" in problem:
        return Fault("", place, "is indented with a tab: YAML takes only spaces")
    return Fault("", place, f"is not YAML: {problem}")


def _place(before: str) -> Position:
    return Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


class _Builder:
    """Turns parser events into nodes, noting what is refused on the way and going on after it."""

    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self.mark = WHOLE_TEXT
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)

    def document(self) -> Node | None:
        self._next()
        if not isinstance(self._next(), yaml.DocumentStartEvent):
            return None
        root = self._node(self._next(), "", 0)
        self._next()
        if isinstance(self._next(), yaml.DocumentStartEvent):
            raise _Unreadable(self.mark, "begins a second document: the configuration is one document, remove this ---")
        return root

    def _next(self) -> yaml.Event:
        event = next(self._events)
        if event.start_mark is not None:
            self.mark = Position(event.start_mark.line + 1, event.start_mark.column + 1)
        return event

    def _node(self, event: yaml.Event, path: str, depth: int) -> Node:
        mark = self.mark
        if depth > DEEPEST:
            raise _Unreadable(mark, f"is nested deeper than {DEEPEST} levels, which no configuration needs")
        self._refuse_decoration(event, path, mark)
        if isinstance(event, yaml.SequenceStartEvent):
            return ListNode(tuple(self._items(path, depth)), mark)
        if isinstance(event, yaml.MappingStartEvent):
            return TableNode(tuple(self._entries(path, depth)), mark)
        if isinstance(event, yaml.ScalarEvent):
            return ScalarNode(event.value, event.style is None, mark)
        return UnusableNode(mark)

    def _refuse_decoration(self, event: yaml.Event, path: str, mark: Position) -> None:
        if isinstance(event, yaml.AliasEvent):
            self.faults.append(Fault(path, mark, "is an alias (*): write the value out"))
        elif isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            self.faults.append(Fault(path, mark, "has an anchor (&): write the value wherever it is needed"))
        if getattr(event, "tag", None) is not None:
            self.faults.append(Fault(path, mark, "has a tag (!): remove it, the field decides the type"))

    def _items(self, path: str, depth: int) -> Iterator[Node]:
        count = 0
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            yield self._node(event, f"{path}[{count}]", depth + 1)
            count += 1

    def _entries(self, path: str, depth: int) -> Iterator[tuple[ScalarNode, Node]]:
        seen: dict[str, Position] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._node(event, path, depth + 1)
            here = _join(path, key.text if isinstance(key, ScalarNode) else "?")
            value = self._node(self._next(), here, depth + 1)
            if refusal := _key_refusal(key, seen):
                self.faults.append(Fault(here, key.mark, refusal))
            elif isinstance(key, ScalarNode):
                seen[key.text] = key.mark
                yield key, value


def _key_refusal(key: Node, seen: dict[str, Position]) -> str | None:
    if not isinstance(key, ScalarNode):
        return "has a key that is not a word"
    if key.plain and key.text == "<<":
        return "is a merge key: write the values out"
    if key.text in seen:
        return f"is given twice, first on line {seen[key.text].line}: remove one"
    return None


def _join(path: str, key: str) -> str:
    return f"{path}.{printable(key)}" if path else printable(key)
