"""Buckets of a frontend's programmed table: for the picture that the dashboard draws, and for `explain flow`.

A table takes milliseconds to build and a dashboard asks every second, so tables are built outside of the event loop,
and the counts of each are kept until its weights change.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.maglev.churn import has_flows
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.target import VipTarget
from holdfast.balancer.vip import Vip, VipKey, VipSettings, shown


class _Inputs(NamedTuple):
    """Everything that decides a table: programmed weights in order, and the number of buckets."""

    weights: tuple[tuple[maglev.BackendId, maglev.BucketWeight], ...]
    size: int


async def bucket_counts(target: VipTarget, frontends: Iterable[ResolvedFrontend]) -> dict[str, dict[str, int]]:
    """Return the number of buckets of each backend, by frontend and address; empty if nothing is programmed."""
    tables = {one.name: _inputs(target, one.vip) for one in frontends}
    return await target.computed(lambda: {name: dict(_counts(inputs)) for name, inputs in tables.items()})


async def programmed_table(
    target: VipTarget, frontend: ResolvedFrontend, names: Mapping[maglev.BackendId, str]
) -> dict[str, Any]:
    """Return the table and its base table, as numbers of members in base64: 16 bits each, little-endian; 65535: none.

    A bucket whose number differs between the two is with a stand-in.
    """
    inputs = _inputs(target, frontend.vip)
    members, now, base = await target.computed(lambda: _tables(inputs))
    return {
        "frontend": frontend.name,
        "size": len(now),
        "members": [{"address": shown(one), "backend": names.get(one, "")} for one in members],
        "table": _packed(now),
        "base": _packed(base),
    }


async def base_owner(target: VipTarget, vip: Vip, bucket: int) -> maglev.BackendId | None:
    """Return the backend that has this bucket in the base table; None without a base."""
    inputs = _inputs(target, vip)
    members, _, base = await target.computed(lambda: _tables(inputs))
    return members[base[bucket]] if bucket < len(base) and base[bucket] >= 0 else None


def _inputs(target: VipTarget, vip: Vip) -> _Inputs:
    settings = target.held.get(VipKey(vip))
    entries = sorted(target.entries(vip).items())
    weights = tuple((one, maglev.BucketWeight(entry.base, entry.weight)) for one, entry in entries)
    return _Inputs(weights, settings.table_size if isinstance(settings, VipSettings) else 0)


@lru_cache(maxsize=1024)
def _counts(inputs: _Inputs) -> tuple[tuple[str, int], ...]:
    members, now, _ = _tables(inputs)
    counts = np.bincount(now[now >= 0], minlength=len(members))
    return tuple((shown(one), int(count)) for one, count in zip(members, counts, strict=True))


def _tables(inputs: _Inputs) -> tuple[tuple[maglev.BackendId, ...], maglev.Table, maglev.Table]:
    weights, size = dict(inputs.weights), inputs.size
    if not size or not has_flows(weights):
        nothing = np.full(size, -1, np.int32)
        return (), nothing, nothing
    members, now = maglev.table(weights, size)
    return members, now, maglev.base_table({one: weight.base for one, weight in weights.items()}, size)[1]


def _packed(table: maglev.Table) -> str:
    return base64.b64encode(table.astype("<i2").tobytes()).decode()
