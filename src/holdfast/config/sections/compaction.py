"""Upkeep of the store: how often its history is compacted, and how large it may grow."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from holdfast.config.schema.field import FieldDoc, Section, Size

GIB = 2**30


class CompactionSettings(Section, frozen=True, kw_only=True):
    """What keeps etcd from filling up. The leader does it, once for all regions of one etcd."""

    every: Annotated[
        timedelta,
        FieldDoc(
            "Between two compactions: the history of the last period is kept, and at least 1,000 revisions. `0s` for "
            "never.",
            small="watchers that were away for a moment have to list everything again",
            big="etcd grows, and at its quota nothing can be written any more",
            least=timedelta(0),
            most=timedelta(days=7),
        ),
    ] = timedelta(minutes=60)
    every_when_large: Annotated[
        timedelta,
        FieldDoc(
            "The same in a fleet of more than 1,000 hosts, where the longer of the two is not waited for.",
            small="watchers that were away for a moment have to list everything again",
            big="etcd grows fast in a large fleet",
            least=timedelta(seconds=10),
            most=timedelta(days=7),
        ),
    ] = timedelta(minutes=10)
    quota: Annotated[
        Size,
        FieldDoc(
            "The size at which etcd stops taking writes (its --quota-backend-bytes); at 80 % of it an alert is raised.",
            small="an alert for nothing",
            big="no alert before the store is full",
            least=1 << 20,
            most=64 * GIB,
        ),
    ] = 2 * GIB
