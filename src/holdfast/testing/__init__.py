"""Public fakes and fixtures for testing what is built on Holdfast: docs/developing/testing.md.

`FakeStore` is an etcd in memory with every fault on demand, `dataplane.FakeDataplane` a balancer's dataplane with
flows. `simulate` runs shipped workers on virtual time, in an order that a seed decides. `etcd`, `postgres`, `netns` and
`proxy` are real things that clean up after themselves; `fixtures` makes pytest fixtures of them. Only tests and the lab
import this package.
"""

from holdfast.testing.client import FakeClient
from holdfast.testing.link import Fate, Link
from holdfast.testing.nodes import Node, NodeClock
from holdfast.testing.simulate import Failure, Simulation, first_failure, simulate
from holdfast.testing.store import FakeStore, Write
from holdfast.testing.virtual_loop import Stuck
from holdfast.testing.world import Trace, World

__all__ = [
    "Failure",
    "FakeClient",
    "FakeStore",
    "Fate",
    "Link",
    "Node",
    "NodeClock",
    "Simulation",
    "Stuck",
    "Trace",
    "World",
    "Write",
    "first_failure",
    "simulate",
]
