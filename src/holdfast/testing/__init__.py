"""Public fakes and fixtures for testing code built on Holdfast: docs/developing/testing.md.

- `FakeStore`: an etcd in memory with every fault on demand (`store/`).
- `simulate`: shipped workers on virtual time, in an order that a seed decides (`sim/`).
- `fakes/`: a reconciler's source and target, the balancer's dataplane, the agent's kernel.
- `real/`: etcd, PostgreSQL, network namespaces, proxies, daemons and whole fleets that clean up after themselves;
  `fixtures` makes pytest fixtures of them.
- `fault`: runs a test with its protection and without it.

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
