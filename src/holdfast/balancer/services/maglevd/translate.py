"""Translation of a whole file of maglevd. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from holdfast.balancer.services.maglevd.keys import Value
from holdfast.balancer.services.maglevd.reader import MaglevdReader, Place
from holdfast.config import ConfigFile, ConfigProblem, ConfigRejected, Origin, resolve
from holdfast.config.loading.origin import Layer
from holdfast.config.loading.yaml import Position, TableNode, read_document

_TABLE_LENGTH = 1024
"""Buckets that maglevd gives each VIP; another number would rebuild every VIP that it leaves."""
_DATAPLANE = ("balancer", "dataplane", "vpp")


@dataclass(frozen=True, slots=True)
class ImportedConfig:
    """Our configuration as YAML, or the problems; `notes` say what differs although it is translated."""

    text: str = ""
    notes: tuple[str, ...] = ()
    rejected: ConfigRejected | None = None


def translate(name: str, data: bytes) -> ImportedConfig:
    """Translate a file of maglevd. Never raises, whatever the bytes."""
    document, reader = read_document(data), MaglevdReader()
    reader.problems += [(fault.mark, fault.path, fault.sentence) for fault in document.faults]
    root = document.root
    if isinstance(root, TableNode):
        for key, child in root.entries:
            if key.text == "maglev":
                reader.read(child, "", ())
            else:
                reader.problems.append((key.mark, key.text, "is not a section of maglevd: it has only maglev"))
    elif not reader.problems:
        reader.problems.append((Position(), "", "is not a configuration of maglevd: it begins with maglev:"))
    if reader.problems:
        return ImportedConfig(rejected=_rejected(name, reader.problems))
    notes = tuple(_settle(reader.values))
    text = yaml.safe_dump(_tree(reader.values), sort_keys=False, allow_unicode=True)
    checked = resolve(ConfigFile(name, text.encode()), {})
    if isinstance(checked, ConfigRejected):
        found = [(_nearest(reader.marks, one.path), one.path, one.sentence) for one in checked.problems]
        return ImportedConfig(rejected=_rejected(name, found))
    return ImportedConfig(text, notes)


def _settle(values: dict[Place, Value | None]) -> Iterator[str]:
    """Add what maglevd does by itself, and yield notes about what differs."""
    values[("balancer", "dataplane", "kind")] = "vpp"
    values[(*_DATAPLANE, "table-length")] = _TABLE_LENGTH
    for frontend in _names(values, "frontends"):
        if ("balancer", "frontends", frontend, "port") not in values:
            values[("balancer", "frontends", frontend, "protocol")] = "any"
        weights = _weights(values, frontend)
        if weights > _TABLE_LENGTH:
            yield (
                f"frontend {frontend}: its weights add up to {weights:,}, more than the {_TABLE_LENGTH:,} buckets that "
                "maglevd gives a VIP: write a larger balancer.dataplane.vpp.table-length, which rebuilds every VIP once"
            )
    for check in _names(values, "healthchecks"):
        at: Place = ("balancer", "healthchecks", check)
        if values.get((*at, "type")) == "icmp" and values.pop((*at, "port"), None) is not None:
            yield f"health check {check}: its port is left out, because a ping has none"
        yield from _split(values, check)


def _split(values: dict[Place, Value | None], check: str) -> Iterator[str]:
    """Make one check per family of one with source addresses: each of ours has one source."""
    at: Place = ("balancer", "healthchecks", check)
    sources = {four: values.pop((*at, f"source-ipv{four}"), None) for four in (4, 6)}
    if not any(sources.values()):
        return
    own = {place: values.pop(place) for place in list(values) if place[:3] == at}
    names = []
    for family, source in sources.items():
        users = [place for place in _uses(values, check) if _family(values, place) == family]
        if not users:
            continue
        names.append(f"{check}-ipv{family}")
        values |= {("balancer", "healthchecks", names[-1], *place[3:]): value for place, value in own.items()}
        values |= dict.fromkeys(users, names[-1])
        if source is not None:
            values[("balancer", "healthchecks", names[-1], "source")] = source
    yield f"health check {check}: is now {' and '.join(names) or 'left out'}, because a check has one source address"


def _uses(values: Mapping[Place, Value | None], check: str) -> Sequence[Place]:
    """Places where backends name that check."""
    return [place for place, value in values.items() if place[3:] == ("healthcheck",) and value == check]


def _family(values: Mapping[Place, Value | None], place: Place) -> int:
    return 6 if ":" in str(values.get((*place[:3], "address"), "")) else 4


def _weights(values: Mapping[Place, Value | None], frontend: str) -> int:
    """The largest sum of weights of a pool."""
    sums: dict[str | int, int] = {}
    for place in values:
        if place[1:4] == ("frontends", frontend, "pools") and len(place) == 7:
            weight = values.get((*place, "weight"), 100)
            sums[place[4]] = sums.get(place[4], 0) + (weight if isinstance(weight, int) else 0)
    return max(sums.values(), default=0)


def _names(values: Mapping[Place, Value | None], group: str) -> Sequence[str]:
    return [str(place[2]) for place in values if len(place) == 3 and place[1] == group]


def _nearest(marks: Mapping[str, Position], path: str) -> Position:
    """Line of maglevd's file that this place of ours came from, or what it is in."""
    path = path.replace("_", "-")
    known = [one for one in marks if path == one.replace("_", "-") or path.startswith((f"{one}.", f"{one}["))]
    return marks[max(known, key=len)] if known else Position()


def _rejected(name: str, problems: Sequence[tuple[Position, str, str]]) -> ConfigRejected:
    made = (ConfigProblem(Origin(Layer.FILE, name, *mark), path, sentence) for mark, path, sentence in problems)
    return ConfigRejected(tuple(sorted(made)))


def _tree(values: Mapping[Place, Value | None]) -> dict[str | int, Any]:
    """Nested tables of these values; a table with places of a list for keys is that list."""
    root: dict[str | int, Any] = {}
    for place, value in values.items():
        at = root
        for part in place[:-1]:
            at = at.setdefault(part, {})
        at.setdefault(place[-1], {} if value is None else value)
    listed = _listed(root)
    assert isinstance(listed, dict)
    return listed


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(isinstance(key, int) for key in tree):
        return [_listed(tree[key]) for key in sorted(tree)]
    return {key: _listed(value) for key, value in tree.items()}
