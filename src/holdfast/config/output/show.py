"""Output of `config show`. What `as_yaml` writes can be used as the file again.

No secret can appear: the configuration only holds the names of the files that they are in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.config.loading.origin import Origin
from holdfast.config.loading.resolve import SETTINGS, VALUES, Loaded, value_at
from holdfast.config.schema.field import Section, fields


def as_table(loaded: Loaded, *, origin: bool) -> str:
    """One line per value and per member of a group, in columns; groups come last."""
    lines = [("FIELD", "VALUE", "ORIGIN")]
    for path, field in sorted(SETTINGS.items(), key=lambda setting: setting[1].is_group):
        value = value_at(loaded.config, path)
        if not field.is_group:
            lines.append((path, field.show(value), str(loaded.origins[path])))
        elif value:
            members = field.plain(value).items()
            lines += [(f"{path}.{name}", _inline(member), _place(loaded, path, name)) for name, member in members]
    first, second = (max(len(line[column]) for line in lines) for column in (0, 1))
    if origin:
        return "".join(f"{a:<{first}}   {b:<{second}}   {c}\n" for a, b, c in lines)
    return "".join(f"{a:<{first}}   {b}\n" for a, b, _ in lines)


def as_yaml(loaded: Loaded, *, origin: bool) -> str:
    """The file that gives this configuration on any machine; origins are comments in it."""
    return "".join(f"{line}\n" for line in _yaml(loaded, loaded.config, "", origin=origin))


def _yaml(loaded: Loaded, section: Section, path: str, *, origin: bool) -> Iterator[str]:
    indent = "  " * path.count(".")
    for name, field in fields(type(section)).items():
        value = getattr(section, name)
        if f"{path}{name}" in VALUES:
            comment = f"  # {loaded.origins[f'{path}{name}']}" if origin else ""
            yield f"{indent}{name}: {field.show(value)}{comment}"
        elif not field.is_group:
            yield f"{indent}{name}:"
            yield from _yaml(loaded, value, f"{path}{name}.", origin=origin)
        elif value:
            yield f"{indent}{name}:"
            for key, member in field.plain(value).items():
                comment = f"  # {_place(loaded, f'{path}{name}', key)}" if origin else ""
                yield f"{indent}  {msgspec.json.encode(key).decode()}: {_inline(member)}{comment}"


def _inline(value: Any) -> str:
    """JSON is YAML on one line."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def _place(loaded: Loaded, path: str, name: str) -> str:
    return str(loaded.origins.get(f"{path}.{name}", Origin()))


def as_json(loaded: Loaded, *, origin: bool) -> str:
    """One object per section; with origins, each value is an object of `value` and `origin`."""
    document: dict[str, Any] = {}
    for path, field in SETTINGS.items():
        *sections, name = path.split(".")
        parent = document
        for step in sections:
            parent = parent.setdefault(step, {})
        value = field.plain(value_at(loaded.config, path))
        if not field.is_group:
            parent[name] = {"value": value, "origin": str(loaded.origins[path])} if origin else value
        elif value:
            parent[name] = value
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
