"""Shares of buckets, for `holdfast explain` on a dataplane that makes its own table and cannot trace a flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.balancer.dataplane.api import SharesBuckets
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.vip import BackendEntry, Vip, VipKey, VipSettings, shown
from holdfast.reconcile import Away
from holdfast.runtime.control import Declined

Shares = Mapping[VipKey, tuple[int, int]]
"""Buckets of an entry, and of its VIP."""
NO_SHARES: Final[Shares] = {}


async def shares_of(reconciler: VipReconciler, vips: Iterable[Vip]) -> Shares:
    """Return the shares of these VIPs; none where the dataplane does not tell them, or is away."""
    plane, held = reconciler.dataplane, reconciler.target.held
    if not isinstance(plane, SharesBuckets):
        return NO_SHARES
    found: dict[VipKey, tuple[int, int]] = {}
    try:
        for vip in vips:
            settings = held.get(VipKey(vip))
            if isinstance(settings, VipSettings):
                shares = await plane.shares(vip)
                found |= {VipKey(vip, one): (count, settings.table_size) for one, count in shares.items()}
    except Away:
        return NO_SHARES  # the state of the entries says that already
    return found


async def spread(reconciler: VipReconciler, frontend: ResolvedFrontend) -> dict[str, Any]:
    """Return the share of new flows that each backend of a frontend gets, for `explain flow`."""
    shares = await shares_of(reconciler, [frontend.vip])
    if not shares:
        raise Declined(f"{frontend.vip} is not programmed; run: holdfast explain frontend {frontend.name}")
    servers = [_server(reconciler, frontend, key, *share) for key, share in sorted(shares.items())]
    return {"frontend": frontend.name, "vip": str(frontend.vip), "spread": servers}


def _server(
    reconciler: VipReconciler, frontend: ResolvedFrontend, key: VipKey, buckets: int, of: int
) -> dict[str, Any]:
    entry = reconciler.target.held.get(key)
    weight = entry.weight if isinstance(entry, BackendEntry) else None
    return {"backend": named(reconciler, frontend, key.backend), "weight": weight, "buckets": buckets, "of": of}


def named(reconciler: VipReconciler, frontend: ResolvedFrontend, backend: BackendId) -> str:
    """Name and address of a backend of this frontend, as people know it."""
    name = reconciler.balancer.names_in(frontend).get(backend)
    return f"{name} ({shown(backend)})" if name else shown(backend)
