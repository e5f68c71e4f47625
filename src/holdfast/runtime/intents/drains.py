"""Drains of hosts, as they are in the store: read by servers, and by commands that put an endpoint on a host."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.control.intent import INTENT, Intent, IntentKind
from holdfast.model.fleet.balancer_report import BalancerReport
from holdfast.store.api import Store


class Drain(msgspec.Struct, frozen=True):
    """One drained host. `flows` has the current flows by balancer: None where a balancer does not count flows; a
    balancer that has not counted since the drain is `waiting`."""

    host: str
    intent: Intent
    flows: Mapping[str, int | None]
    waiting: tuple[str, ...]


async def read_drains(store: Store, region: Region, wall: datetime) -> list[Intent]:
    """Read the drains in force at that wall-clock time. Raises `StoreAway` or `StoreError`."""
    prefix = INTENT.prefix(region) + f"{IntentKind.DRAIN.value}/".encode()
    found = [INTENT.decode(one.key, one.value) async for page in store.list(prefix) for one in page.entries]
    return [one for one in found if isinstance(one, Intent) and one.holds(wall)]


def seen(intent: Intent, balancers: Mapping[str, BalancerReport | Bad]) -> Drain:
    """Return the drain with what the balancers report about it; an unreadable report has not counted. Pure."""
    host = intent.scope.name
    readable = {name: report for name, report in balancers.items() if isinstance(report, BalancerReport)}
    counted = {name: report.draining[host] for name, report in readable.items() if host in report.draining}
    return Drain(host, intent, counted, tuple(sorted(balancers.keys() - counted.keys())))
