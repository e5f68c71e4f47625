"""The effective configuration as people and programs read it. What `as_yaml` writes can be used as the file again.

No secret can appear here: the configuration only ever holds the names of the files they are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.config.field import Leaf
from holdfast.config.origin import Origin
from holdfast.config.resolve import LEAVES, Loaded


def rows(loaded: Loaded) -> Iterator[tuple[Leaf, Any, Origin]]:
    """Every field with its value and origin, in the order of the reference."""
    for name, leaf in LEAVES.items():
        value: Any = loaded.config
        for step in leaf.path:
            value = getattr(value, step)
        yield leaf, value, loaded.origins[name]


def as_table(loaded: Loaded, *, origin: bool) -> str:
    """One line per field, in columns."""
    lines = [("FIELD", "VALUE", "ORIGIN")]
    lines += [(leaf.name, leaf.show(value), str(place)) for leaf, value, place in rows(loaded)]
    first, second = (max(len(line[column]) for line in lines) for column in (0, 1))
    if origin:
        return "".join(f"{a:<{first}}   {b:<{second}}   {c}\n" for a, b, c in lines)
    return "".join(f"{a:<{first}}   {b}\n" for a, b, _ in lines)


def as_yaml(loaded: Loaded, *, origin: bool) -> str:
    """The file that would give this configuration on any machine; origins are comments in it."""
    lines: list[str] = []
    above: tuple[str, ...] = ()
    for leaf, value, place in rows(loaded):
        for depth, step in enumerate(leaf.path[:-1]):
            if leaf.path[: depth + 1] != above[: depth + 1]:
                lines.append("  " * depth + f"{step}:")
        above = leaf.path[:-1]
        comment = f"  # {place}" if origin else ""
        lines.append("  " * len(above) + f"{leaf.path[-1]}: {leaf.show(value)}{comment}")
    return "\n".join(lines) + "\n"


def as_json(loaded: Loaded, *, origin: bool) -> str:
    """One object per section; with origins, each field is an object of `value` and `origin`."""
    document: dict[str, Any] = {}
    for leaf, value, place in rows(loaded):
        section = document
        for step in leaf.path[:-1]:
            section = section.setdefault(step, {})
        plain = _plain(leaf, value)
        section[leaf.path[-1]] = {"value": plain, "origin": str(place)} if origin else plain
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _plain(leaf: Leaf, value: Any) -> object:
    """Durations and sizes are written with their units, as in the file; what JSON has itself stays itself."""
    if leaf.many:
        return [_scalar(leaf, item) for item in value]
    return _scalar(leaf, value)


def _scalar(leaf: Leaf, value: Any) -> object:
    return value if value is None or isinstance(value, bool | str) or leaf.kind.show is str else leaf.kind.show(value)
