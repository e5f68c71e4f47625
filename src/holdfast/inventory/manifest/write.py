"""Manifests from objects: applying what `holdfast get -o yaml` prints changes nothing. Pure.

The inverse of `read`. Fields that a manifest does not set (uid, region, source of a migration) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import yaml

from holdfast.config.schema.scalars import show_duration
from holdfast.inventory.kinds import host_of
from holdfast.model.base.kind import Kind
from holdfast.model.calico.endpoint import Endpoint
from holdfast.model.calico.host import REGION_LABEL, Host
from holdfast.model.calico.migration import Migration
from holdfast.model.calico.subnet import Subnet
from holdfast.model.fleet.network import NETWORK_LABEL

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""libyaml, where it is installed, writes a large fleet ten times as fast."""


def described(kind: Kind[Any, Any], name: str, thing: Any) -> dict[str, Any]:
    """One object as a manifest has it."""
    spec: dict[str, Any]
    match thing:
        case Migration():
            spec = {"to": host_of(thing)}
        case Host() | Endpoint():
            spec = _plain(thing.spec)
        case Subnet() if thing.network_id == name:
            spec = {field: value for field, value in _plain(thing).items() if field != "network_id"}
        case _:
            spec = _plain(thing)
    labels = thing.metadata.labels if isinstance(thing, Host | Endpoint) else {}
    return {"kind": kind.name, "name": name, **_labels(labels), "spec": spec}


def text(objects: Sequence[Mapping[str, Any]]) -> str:
    """The text of a manifest; several texts in a row are a valid manifest, too."""
    if not objects:
        return ""
    written: str = yaml.dump(list(objects), Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=120)
    return written


def _labels(given: Mapping[str, str]) -> dict[str, Any]:
    """The network is a field of its own, and the region follows from the configuration."""
    rest = {label: value for label, value in given.items() if label not in (REGION_LABEL, NETWORK_LABEL)}
    network = given.get(NETWORK_LABEL)
    return ({"network": network} if network else {}) | ({"labels": rest} if rest else {})


def _plain(thing: Any) -> Any:
    return _shown(msgspec.to_builtins(thing, builtin_types=(timedelta,)))


def _shown(value: Any) -> Any:
    """Durations with units; unset fields are left out."""
    match value:
        case timedelta():
            return show_duration(value)
        case dict():
            return {field: _shown(one) for field, one in value.items() if one is not None}
        case list() | tuple():
            return [_shown(one) for one in value]
    return value
