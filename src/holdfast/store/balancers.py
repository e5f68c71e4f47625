"""List of the balancers of a region, with what they report, as any process can read it from the store."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.fleet.balancer_report import BALANCER_REPORT
from holdfast.store.api import Store


class BalancerSeen(msgspec.Struct, frozen=True):
    """One balancer that reports."""

    name: str
    version: str
    frontends: Mapping[str, str]
    """Frontend → up, down or unknown."""
    table: str = ""
    """Digest of the programmed table; equal on equal peers."""


async def read_balancers(store: Store, region: Region) -> list[BalancerSeen]:
    """Return all balancers whose report can be read. Raises `StoreAway` or `StoreError`."""
    found: list[BalancerSeen] = []
    async for page in store.list(BALANCER_REPORT.prefix(region)):
        for one in page.entries:
            name, report = BALANCER_REPORT.parse(one.key, region), BALANCER_REPORT.decode(one.key, one.value)
            if not isinstance(name, Bad) and not isinstance(report, Bad):
                found.append(BalancerSeen(name, report.version, report.frontends, report.table))
    return found
