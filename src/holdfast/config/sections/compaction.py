"""Compaction of etcd: its interval, and the quota that alerts refer to."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import FieldDoc, Section, Size

GIB = 2**30


class CompactionSettings(Section, frozen=True, kw_only=True):
    """Compaction of etcd, done by one leader for all regions of an etcd."""

    every: Annotated[
        timedelta,
        FieldDoc(
            "Interval between two compactions. The history of the last interval is kept, and at least 1,000 revisions. "
            "`0s` for never.",
            small="watchers that were disconnected for a moment must list everything again",
            big="etcd grows until it reaches its quota and refuses all writes",
            least=timedelta(0),
            most=timedelta(days=7),
        ),
    ] = timedelta(minutes=60)
    every_when_large: Annotated[
        timedelta,
        FieldDoc(
            "Interval in a fleet of more than 1,000 hosts, if it is shorter than `every`.",
            small="watchers that were disconnected for a moment must list everything again",
            big="etcd grows fast in a large fleet",
            least=timedelta(seconds=10),
            most=timedelta(days=7),
        ),
    ] = timedelta(minutes=10)
    quota: Annotated[
        Size,
        FieldDoc(
            "Size at which etcd refuses writes (its `--quota-backend-bytes`). An alert is raised at 80 % of it.",
            small="the alert is raised too early",
            big="the store is full before the alert is raised",
            least=1 << 20,
            most=64 * GIB,
        ),
    ] = 2 * GIB
