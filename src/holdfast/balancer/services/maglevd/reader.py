"""Reads the tree of a file of maglevd: our values by place, the line of each, and every problem. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast.balancer.services.maglevd.keys import KNOWN_TABLES, RULES, Value
from holdfast.config.loading.yaml import ListNode, Node, Position, ScalarNode, TableNode
from holdfast.config.schema.scalars import closest

Place = tuple[str | int, ...]
"""Path of a value in our configuration; numbers are places in a list."""


@dataclass(slots=True)
class MaglevdReader:
    values: dict[Place, Value | None] = field(default_factory=dict)
    """Ours by place; None is an empty table."""
    marks: dict[str, Position] = field(default_factory=dict)
    problems: list[tuple[Position, str, str]] = field(default_factory=list)

    def read(self, node: Node, pattern: str, path: Place) -> None:
        """Read a node of maglevd's file; `path` has the names that stand for the stars of the pattern."""
        shown = ".".join(map(str, ("maglev", *path)))
        if pattern in RULES:
            if isinstance(node, ScalarNode):
                ours, convert = RULES[pattern]
                value = _scalar(node)
                self._note(_filled(ours, path, pattern), node.mark, convert(value) if convert else value)
            else:
                self.problems.append((node.mark, shown, "is not a single value"))
        elif pattern not in KNOWN_TABLES and pattern:
            known = [rule.rpartition(".")[2] for rule in (*RULES, *KNOWN_TABLES) if _parent(rule) == _parent(pattern)]
            self.problems.append(
                (node.mark, shown, f"is not a key that can be translated{closest(str(path[-1]), known)}")
            )
        else:
            self._table(node, pattern, path, shown)

    def _table(self, node: Node, pattern: str, path: Place, shown: str) -> None:
        if pattern.endswith("*"):
            self._note(_filled(pattern, path, pattern), node.mark, None)
        named = any(table.startswith(f"{pattern}.*" if pattern else "*") for table in (*RULES, *KNOWN_TABLES))
        for key, mark, child in _children(node):
            below = "*" if named else str(key)
            if mark is not None and named and not key:
                self.problems.append((mark, shown, "has an entry without a name"))
                continue
            self.read(child, f"{pattern}.{below}" if pattern else below, (*path, key))
        if isinstance(node, ScalarNode) and not (node.is_empty or node.is_null):
            self.problems.append((node.mark, shown, "is not a table"))

    def _note(self, place: Place, mark: Position, value: Value | None) -> None:
        self.values[place] = value
        self.marks[path_of(place)] = mark


def _children(node: Node) -> Iterator[tuple[str | int, Position | None, Node]]:
    if isinstance(node, TableNode):
        yield from ((key.text, key.mark, child) for key, child in node.entries)
    elif isinstance(node, ListNode):
        yield from ((index, None, child) for index, child in enumerate(node.nodes))


def _parent(pattern: str) -> str:
    return pattern.rpartition(".")[0]


def _filled(ours: str, path: Place, pattern: str) -> Place:
    """Our place, with the names of maglevd's path in the place of the stars."""
    names = iter([name for name, part in zip(path, pattern.split("."), strict=True) if part == "*"])
    return ("balancer", *(next(names) if part == "*" else part for part in ours.split(".")))


def path_of(place: Place) -> str:
    return ".".join(str(part) if isinstance(part, str) else f"[{part}]" for part in place).replace(".[", "[")


def _scalar(node: ScalarNode) -> Value:
    if node.plain and node.text in ("true", "false"):
        return node.text == "true"
    return int(node.text) if node.plain and node.text.isascii() and node.text.isdigit() else node.text
