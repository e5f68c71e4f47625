"""YAML as text with positions: the tree of a document before its fields give it a meaning.

Scalars stay text, so no type is guessed from their looks. Refused, each with its line and column: a key given twice,
anchors, aliases and merge keys (so a small file cannot expand into a large one), tags, several documents, and nesting
deeper than any configuration needs. A manifest may have several documents. `parse` never raises, whatever the text.

The parser's events are used, not its nodes: a node no longer shows whether its tag was written or guessed, and
composing nodes recurses before the depth can be limited.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import yaml

from holdfast.config.schema.scalars import printable

LARGEST = 256 * 1024
DEEPEST = 16


class Position(NamedTuple):
    """A place in a text, counted from 1. Line 0 is the text as a whole."""

    line: int = 0
    column: int = 0


class ScalarNode(NamedTuple):
    text: str
    plain: bool = True
    mark: Position = Position()

    @property
    def is_empty(self) -> bool:
        return self.plain and not self.text

    @property
    def is_null(self) -> bool:
        return self.plain and self.text == "null"


class ListNode(NamedTuple):
    nodes: tuple[Node, ...]
    mark: Position = Position()


class TableNode(NamedTuple):
    entries: tuple[tuple[ScalarNode, Node], ...]
    mark: Position = Position()


class UnusableNode(NamedTuple):
    """Placeholder for an alias. The document's faults name it, so readers skip it in silence."""

    mark: Position = Position()


Node = ScalarNode | ListNode | TableNode | UnusableNode


class Fault(NamedTuple):
    """A problem at one place of a text."""

    path: str
    mark: Position
    sentence: str


class Document(NamedTuple):
    """The root of a text, `None` where it has none, and all faults of its form."""

    root: Node | None
    faults: tuple[Fault, ...] = ()


class _Unreadable(Exception):
    def __init__(self, mark: Position, sentence: str) -> None:
        self.fault = Fault("", mark, sentence)


def read_document(data: bytes) -> Document:
    """Decode and parse a file."""
    if len(data) > LARGEST:
        return _refused(Position(), f"is larger than {LARGEST // 1024} KiB, which no configuration needs")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return _refused(_end(data[: error.start].decode("utf-8", "replace")), "is not UTF-8: save the file as UTF-8")
    if not text.strip():
        # A file that a full disk truncated must not pass for "all defaults" at the next reload.
        return _refused(Position(), "is empty: for the defaults alone, write a comment into it or remove it")
    return parse(text)


def _refused(mark: Position, sentence: str) -> Document:
    return Document(None, (Fault("", mark, sentence),))


def parse(text: str, *, several: bool = False) -> Document:
    """Parse one YAML document; if `several` are allowed, the root is the list of them."""
    builder = _Builder(text)
    try:
        root = ListNode(tuple(builder.documents())) if several else builder.document()
        return Document(root, tuple(builder.faults))
    except _Unreadable as stop:
        fault = stop.fault
    except yaml.reader.ReaderError as error:
        fault = Fault("", _end(text[: error.position]), "holds a control character, which YAML does not allow")
    except yaml.MarkedYAMLError as error:
        fault = _syntax(error)
    except (ValueError, OverflowError):
        # PyYAML raises these for `"\UFFFFFFFF"` and for a version directive with thousands of digits.
        fault = Fault("", builder.mark, "is not YAML: after this there is a number or an escape that is too large")
    return Document(None, (*builder.faults, fault))


def _syntax(error: yaml.MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark
    place = Position(mark.line + 1, mark.column + 1) if mark else Position()
    problem = error.problem or error.context or "it cannot be parsed"
    if "\\t" in problem:
        return Fault("", place, "is indented with a tab: YAML takes only spaces")
    return Fault("", place, f"is not YAML: {problem}")


def _end(before: str) -> Position:
    return Position(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


class _Builder:
    """Turns parser events into nodes; collects what is refused and continues after it."""

    def __init__(self, text: str) -> None:
        self.faults: list[Fault] = []
        self.mark = Position()
        self._begun = Position()
        """Place of the document that is read."""
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)

    def document(self) -> Node | None:
        documents = self.documents()
        root = next(documents, None)
        if next(documents, None) is not None:
            raise _Unreadable(
                self._begun, "begins a second document: the configuration is one document, remove this ---"
            )
        return root

    def documents(self) -> Iterator[Node]:
        self._next()
        while isinstance(self._next(), yaml.DocumentStartEvent):
            self._begun = self.mark
            yield self._node(self._next(), "", 0)
            self._next()

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
            here = dotted(path, key.text if isinstance(key, ScalarNode) else "?")
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
    return given_twice(seen[key.text]) if key.text in seen else None


def given_twice(first: Position) -> str:
    return f"is given twice, first on line {first.line}: remove one"


def dotted(path: str, key: str) -> str:
    """The path of a key below a path."""
    return f"{path}.{printable(key)}" if path else printable(key)
