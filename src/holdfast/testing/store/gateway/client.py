"""The shipped etcd client of one simulated process, with the link that carries its bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

from holdfast.model.base.time import Duration, seconds
from holdfast.store.boottime import Now
from holdfast.store.client import EtcdStore
from holdfast.testing.store.gateway.network import SimNetwork


class SimEtcdStore(EtcdStore):
    """`EtcdStore` on a simulated network; a test injects the faults of this client into `link`."""

    def __init__(
        self,
        network: SimNetwork,
        name: str,
        *,
        now: Now,
        rng: random.Random,
        latency: Callable[[], float] = lambda: 0.0,
        deadline: Duration = seconds(5),
        user: str = "",
        password: str = "",
        relist_spread: Duration = Duration(0),
    ) -> None:
        self.name = name
        self.network = network
        self.link = network.link(name, latency)
        connection = network.connection(self.link, deadline=deadline, user=user, password=password)
        super().__init__(connection, now=now, rng=rng, relist_spread=relist_spread)

    def go_stale(self, revision: int) -> None:
        """Let every member answer reads from a copy that stopped at `revision`; streams are silent."""
        for member in self.network.members:
            member.fall_behind(revision)

    def go_fresh(self) -> None:
        for member in self.network.members:
            member.rejoin()
