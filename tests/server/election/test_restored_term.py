"""A restored store can give the term of a new leader the number of an old one; the old leader leaves its key alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.time import seconds
from holdfast.server.election.elector import Elector
from holdfast.server.election.leadership import Leading
from holdfast.server.election.machine import Renew, Resign
from holdfast.store.api import Aspect, Compare
from holdfast.testing import World, simulate
from holdfast.testing.fault import fault
from tests.sim.restore_invariants import RestoredElection
from tests.sim.servers import LEADER_KEY, Host, SimServer


def leads(server: SimServer) -> bool:
    return isinstance(server.check(), Leading)


def term_alone(self: Elector, effect: Renew | Resign) -> Sequence[Compare]:
    return [Compare(self._key, Aspect.CREATE_REVISION, effect.term)]


@fault(
    "C42",
    without="holdfast.server.election.elector:Elector._is_ours",
    by="tests.server.election.test_restored_term:term_alone",
    sees=(AssertionError, r"there\.lease == again\.lease"),
)
def test_C42_an_old_leader_leaves_the_key_of_a_new_one_alone_whose_term_has_the_same_number() -> None:
    numbers: set[bool] = set()

    async def scenario(world: World) -> None:
        old, new = (SimServer(world, name, Host(world, f"host-{name}"), "pid", ServerSettings()) for name in "ab")
        RestoredElection(world, [old, new])
        old.start()
        await world.until(lambda: leads(old), within=seconds(5))
        new.start()
        await asyncio.sleep(3)
        taken = world.store.keys.get(LEADER_KEY)
        assert taken is not None
        old.electing.pause()
        world.store.restore(taken.create_revision - 1)
        await world.until(lambda: leads(new), within=seconds(60))
        again = world.store.keys.get(LEADER_KEY)
        assert again is not None
        numbers.add(again.create_revision == taken.create_revision)
        old.electing.resume()
        for _ in range(100):
            await asyncio.sleep(0.2)
            there = world.store.keys.get(LEADER_KEY)
            assert there is not None, "the key of the new leader was deleted"
            assert there.lease == again.lease
            assert leads(new)

    for seed in range(4):
        simulate(seed, scenario)
    assert True in numbers, "no term had the number of the one before"
