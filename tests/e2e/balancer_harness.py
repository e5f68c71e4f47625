"""Helpers of the balancer's end-to-end tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from holdfast.testing.real.balancers import ALL, VIP, BalancedSite
from holdfast.testing.real.daemon import PATIENCE
from holdfast.testing.real.flows import FlowCounts
from holdfast.testing.real.netns import NamespaceNetwork
from holdfast.testing.real.processes import Unavailable, wait_until

__all__ = ["ALL", "VIP", "BalancedSite", "failures", "stage", "wait"]


@contextlib.contextmanager
def stage(net: NamespaceNetwork, balancers: int = 1, **settings: Any) -> Iterator[BalancedSite]:
    """Run the site until the block ends, and wait until it is served. Skip if it is unavailable."""
    try:
        made = BalancedSite(net, balancers=balancers, **settings)
    except Unavailable as missing:
        pytest.skip(str(missing))
    try:
        made.wait_served()
        yield made
    finally:
        made.end()


wait = partial(wait_until, within=PATIENCE)


def failures(before: FlowCounts, after: FlowCounts) -> list[str]:
    """Return the reason of the last failure between two counts."""
    return [after.why] * (after.failed - before.failed)
