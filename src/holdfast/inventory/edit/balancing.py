"""What balancers serve, as a whole: health checks, backends and frontends that contradict one another are refused.

The words and rules are those of a balancer's own configuration file, so that what the inventory takes, every balancer
understands. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.config.loading.section import unfit
from holdfast.config.schema.field import Section
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.frontend import Backend, Frontend
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.balancing.backend import BACKEND
from holdfast.model.balancing.frontend import FRONTEND
from holdfast.model.balancing.healthcheck import HEALTH_CHECK
from holdfast.model.base.kind import Kind

SECTIONS: Mapping[str, type[Section]] = {
    HEALTH_CHECK.name: HealthCheck,
    BACKEND.name: Backend,
    FRONTEND.name: Frontend,
}
"""The section of the configuration that has the fields of each of these kinds."""

_GROUPS: Mapping[str, str] = {HEALTH_CHECK.name: "healthchecks", BACKEND.name: "backends", FRONTEND.name: "frontends"}


def section(kind: Kind[Any, Any], thing: Any) -> Section:
    """The object as a balancer's file would have it. Raises ValueError with a sentence."""
    found: Section = msgspec.convert(thing, SECTIONS[kind.name], from_attributes=True)
    wrong = unfit(found)
    if wrong is not None:
        raise ValueError(wrong)
    return found


def thing(kind: Kind[Any, Any], given: Section) -> Any:
    """The object that a section of a file describes."""
    return msgspec.convert(given, kind.struct, from_attributes=True)


def contradiction(served: Iterable[tuple[Kind[Any, Any], str, Any]]) -> str | None:
    """What is wrong with all of this together, in one sentence; None: nothing."""
    groups: dict[str, dict[str, Any]] = {group: {} for group in _GROUPS.values()}
    for kind, name, one in served:
        found = msgspec.convert(one, SECTIONS[kind.name], from_attributes=True)
        if isinstance(found, Frontend):
            # Whether the address can be announced is for the machine that does it to say.
            found = msgspec.structs.replace(found, announce=None)
        groups[_GROUPS[kind.name]][name] = found
    whole = msgspec.structs.replace(BalancerSettings(source="etcd"), **groups)
    conflict = next(whole.conflicts(), None)
    return None if conflict is None else f"{conflict.fields[0]} {conflict.sentence}"
