"""The effective configuration as people and programs read it. What `as_yaml` writes can be used as the file again.

No secret can appear here: the configuration only ever holds the names of the files they are in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast.config.loading.group import plain_group
from holdfast.config.loading.origin import Origin
from holdfast.config.loading.resolve import GROUPS, LEAVES, Loaded
from holdfast.config.schema.field import Leaf


def rows(loaded: Loaded) -> Iterator[tuple[Leaf, Any, Origin]]:
    """Every field with its value and origin, in the order of the reference."""
    for name, leaf in LEAVES.items():
        value: Any = loaded.config
        for step in leaf.path:
            value = getattr(value, step)
        yield leaf, value, loaded.origins[name]


def grouped(loaded: Loaded) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every group that is not empty with its members in the form of the file."""
    for path, group in GROUPS.items():
        value: Any = loaded.config
        for step in path:
            value = getattr(value, step)
        if value:
            yield path, plain_group(group, value)


def as_table(loaded: Loaded, *, origin: bool) -> str:
    """One line per field, in columns."""
    lines = [("FIELD", "VALUE", "ORIGIN")]
    lines += [(leaf.name, leaf.show(value), str(place)) for leaf, value, place in rows(loaded)]
    for path, members in grouped(loaded):
        lines += [
            (f"{'.'.join(path)}.{name}", _inline(member), _place(loaded, path, name))
            for name, member in members.items()
        ]
    first, second = (max(len(line[column]) for line in lines) for column in (0, 1))
    if origin:
        return "".join(f"{a:<{first}}   {b:<{second}}   {c}\n" for a, b, c in lines)
    return "".join(f"{a:<{first}}   {b}\n" for a, b, _ in lines)


def as_yaml(loaded: Loaded, *, origin: bool) -> str:
    """The file that would give this configuration on any machine; origins are comments in it."""
    lines: list[str] = []
    above: tuple[str, ...] = ()
    groups = dict(grouped(loaded))
    for leaf, value, place in rows(loaded):
        if leaf.path[:1] != above[:1]:
            lines += _members(loaded, above[:1], groups, origin=origin)
        for depth, step in enumerate(leaf.path[:-1]):
            if leaf.path[: depth + 1] != above[: depth + 1]:
                lines.append("  " * depth + f"{step}:")
        above = leaf.path[:-1]
        comment = f"  # {place}" if origin else ""
        lines.append("  " * len(above) + f"{leaf.path[-1]}: {leaf.show(value)}{comment}")
    lines += _members(loaded, above[:1], groups, origin=origin)
    return "\n".join(lines) + "\n"


def _members(
    loaded: Loaded, section: tuple[str, ...], groups: Mapping[tuple[str, ...], Any], *, origin: bool
) -> Iterator[str]:
    """The groups of a section, at its end."""
    for path, members in groups.items():
        if path[:-1] != section:
            continue
        yield f"  {path[-1]}:"
        for name, member in members.items():
            comment = f"  # {_place(loaded, path, name)}" if origin else ""
            yield f"    {msgspec.json.encode(name).decode()}: {_inline(member)}{comment}"


def _inline(value: Any) -> str:
    """JSON is YAML on one line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _place(loaded: Loaded, path: tuple[str, ...], name: str) -> str:
    return str(loaded.origins.get(".".join((*path, name)), Origin()))


def as_json(loaded: Loaded, *, origin: bool) -> str:
    """One object per section; with origins, each field is an object of `value` and `origin`."""
    document: dict[str, Any] = {}
    for leaf, value, place in rows(loaded):
        section = document
        for step in leaf.path[:-1]:
            section = section.setdefault(step, {})
        plain = leaf.plain(value)
        section[leaf.path[-1]] = {"value": plain, "origin": str(place)} if origin else plain
    for path, members in grouped(loaded):
        document[path[0]][path[1]] = members
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
