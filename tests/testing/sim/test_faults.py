"""A storm shakes everything, ends, and finds the mistake that a calm day does not show."""

from __future__ import annotations

import asyncio

from holdfast.model.base.time import Instant, seconds
from holdfast.store.api import Aspect, Compare, LeaseGone, Put, StoreAway
from holdfast.testing import Node, World, first_failure, simulate
from holdfast.testing.sim.faults import FAULTS, inject_faults, kill, partition, pause, slow
from holdfast.testing.sim.simulate import Scenario

TTL = seconds(5)
SERVERS = ("a", "b", "c")


class Crown:
    """The server that believes to lead now, and until when by its own clock."""

    def __init__(self) -> None:
        self.claims: dict[Node, Instant] = {}

    def claim(self, node: Node, until: Instant) -> None:
        self.claims[node] = until
        self.check()

    def check(self) -> None:
        assert len(self.wearers()) <= 1, f"{self.wearers()} lead at once"

    def wearers(self) -> list[str]:
        """A process that is frozen or dead believes nothing; the rest believe what their deadline says."""
        return [n.name for n, until in self.claims.items() if n.alive and not n.paused and n.clock.now() < until]


async def campaign(node: Node, crown: Crown, *, counted_from_the_reply: bool) -> None:
    """A leader by lease, as simple as it can be. Counting the lease from the reply is the mistake (C10)."""
    store = node.store(deadline=seconds(3))
    lease = 0
    while True:
        sent = node.clock.now()
        try:
            if not lease:
                lease = await store.grant(TTL)
                absent = Compare(b"leader", Aspect.CREATE_REVISION, 0)
                won = await store.txn([absent], [Put(b"leader", node.name.encode(), lease)])
                lease = lease if won.succeeded else 0
            else:
                await store.renew(lease)
            if lease:
                begun = node.clock.now() if counted_from_the_reply else sent
                crown.claim(node, begun + TTL)
        except (StoreAway, LeaseGone):
            lease = 0
        await asyncio.sleep(1)


def election_scenario(*, counted_from_the_reply: bool) -> Scenario[None]:
    async def scenario(world: World) -> None:
        crown = Crown()

        def start(node: Node) -> None:
            crown.claims.pop(node, None)
            node.run(campaign(node, crown, counted_from_the_reply=counted_from_the_reply))

        async def watch() -> None:
            while True:
                crown.check()
                await asyncio.sleep(0.25)

        for name in SERVERS:
            start(world.node(name))
        world.node("judge").run(watch())
        await inject_faults(world, SERVERS, lasting=seconds(120), revive=start, faults=[slow, partition, kill, pause])

    return scenario


def test_C10_a_lease_counted_from_the_reply_is_found_out() -> None:
    failure = first_failure(range(100), election_scenario(counted_from_the_reply=True))
    assert failure is not None
    assert "lead at once" in str(failure.error)


def test_C10_a_lease_counted_from_the_send_survives_the_same_storms() -> None:
    assert first_failure(range(100), election_scenario(counted_from_the_reply=False)) is None


def test_after_the_storm_everybody_lives_and_is_connected() -> None:
    async def scenario(world: World) -> None:
        async def idle() -> None:
            await asyncio.Event().wait()

        def start(node: Node) -> None:
            node.store()
            node.run(idle())

        for name in SERVERS:
            start(world.node(name))
        await inject_faults(world, SERVERS, lasting=seconds(300), revive=start, calm=seconds(0.5))
        for name in SERVERS:
            node = world.node(name)
            assert node.alive
            assert not node.paused
            for _ in range(20):
                begun = world.time
                await node.run(node.clients[0].put(b"k", b"v"))
                assert world.time - begun < 0.1

    for seed in range(20):
        simulate(seed, scenario)


def test_every_fault_is_drawn_sooner_or_later() -> None:
    async def scenario(world: World) -> list[str]:
        drawn: list[str] = []

        async def noted(fault: str) -> None:
            drawn.append(fault)

        faults = [lambda _world, _node, _revive, fault=fault: noted(fault) for fault in FAULTS]
        await inject_faults(world, ["a"], lasting=seconds(1_000), revive=lambda _node: None, faults=faults)
        return drawn

    assert set(simulate(1, scenario).value) == set(FAULTS)
