"""Public fakes and fixtures for testing what is built on Holdfast: docs/developing/testing.md.

`FakeStore` is an etcd in memory with every fault on demand, `fakes.dataplane.FakeDataplane` a balancer's dataplane with
flows. `simulate` runs shipped workers on virtual time, in an order that a seed decides. `real.etcd`, `real.postgres`,
`real.netns` and `real.proxy` are real things that clean up after themselves; `fixtures` makes pytest fixtures of them.
Only tests and the lab import this package.
"""

from holdfast.testing.sim.loop import Stuck
from holdfast.testing.sim.nodes import Node, NodeClock
from holdfast.testing.sim.simulate import Failure, Simulation, first_failure, simulate
from holdfast.testing.sim.world import Trace, World
from holdfast.testing.store.client import FakeClient
from holdfast.testing.store.fake import FakeStore, StoreWrite
from holdfast.testing.store.link import FakeLink, Fate

__all__ = [
    "Failure",
    "FakeClient",
    "FakeLink",
    "FakeStore",
    "Fate",
    "Node",
    "NodeClock",
    "Simulation",
    "StoreWrite",
    "Stuck",
    "Trace",
    "World",
    "first_failure",
    "simulate",
]
