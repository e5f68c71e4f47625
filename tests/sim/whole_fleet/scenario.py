"""Scenario of the whole fleet: two or three servers, agents and balancers, a minute of edits and faults, then rest."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path

from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.model.base.time import seconds
from holdfast.testing import Node, World
from holdfast.testing.sim.seams import on_simulated_machines
from tests.balancer.harness import TruthfulProber
from tests.sim.election_invariants import InvariantBroken
from tests.sim.whole_fleet.faults import FAULTS, inject_faults
from tests.sim.whole_fleet.fleet import SimFleet
from tests.sim.whole_fleet.invariants import FleetInvariants
from tests.sim.whole_fleet.operators import SPARE, Operators

TROUBLE = 60.0
REST = seconds(240)
OPERATOR_LOOKS_EVERY = 30.0
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


@dataclass(frozen=True, slots=True)
class FleetResult:
    """Counts of one run, so that a run without events is not taken for a proof."""

    terms: int
    writes: int
    deletes: int
    edits: int
    faults: int
    rest_after: float


@dataclass(frozen=True, slots=True)
class FleetSize:
    """Actors and faults of a run; None lets the seed draw. Shrinking takes some of them away."""

    servers: int | None = None
    agents: int | None = None
    balancers: int | None = None
    faults: frozenset[str] = frozenset(fault.__name__ for fault in FAULTS)
    lasting: float = TROUBLE


WHOLE = FleetSize()


async def fleet_scenario(world: World, size: FleetSize = WHOLE) -> FleetResult:
    with tempfile.TemporaryDirectory(prefix="holdfast-sim-", dir=IN_MEMORY) as made:
        fleet = SimFleet(world, Path(made))
        servers, agents, balancers = _drawn(world, size)
        for number in range(servers):
            fleet.add_server(f"s{number}")
        for number in range(agents):
            fleet.add_agent(f"h{number}")
        for number in range(balancers):
            fleet.add_balancer(f"lb{number}")

        def prober(node: Node) -> TruthfulProber:
            return TruthfulProber(node, fleet.truth)

        engine = open_engine(database_url(fleet.database), create=True)
        try:
            migrate(engine)
            with on_simulated_machines(world, fleet.machines, prober) as seams:
                people = Operators(world, engine, [*fleet.agents, SPARE], seams.ask, fleet)
                try:
                    return await _live(world, fleet, people, size, engine)
                finally:
                    fleet.close()
        finally:
            engine.dispose()


def _drawn(world: World, size: FleetSize) -> tuple[int, int, int]:
    drawn = world.random.randint(2, 3), world.random.randint(1, 3), world.random.randint(1, 2)
    given = size.servers, size.agents, size.balancers
    servers, agents, balancers = (d if g is None else g for d, g in zip(drawn, given, strict=True))
    return servers, agents, balancers


async def _live(world: World, fleet: SimFleet, people: Operators, size: FleetSize, engine: object) -> FleetResult:
    judge = FleetInvariants(world, fleet)
    people.begin()
    fleet.start()
    editing = [asyncio.create_task(work) for work in (people.run(), people.operate())]
    faults = await inject_faults(fleet, lasting=size.lasting, allowed=size.faults)
    for task in editing:
        task.cancel()
    await asyncio.gather(*editing, return_exceptions=True)
    world.note("the trouble is over, and nobody edits any more")
    begun = world.time
    inventory, observed = SqlInventory(engine), SqlObserved(engine)  # type: ignore[arg-type]
    await _rest(world, judge, people, inventory, observed)
    terms = judge.terms_before + len(judge.terms)
    return FleetResult(terms, judge.desired_writes, judge.deletes, people.edits, faults, world.time - begun)


async def _rest(
    world: World, judge: FleetInvariants, people: Operators, inventory: SqlInventory, observed: SqlObserved
) -> None:
    end, looked = world.time + REST.total_seconds(), world.time - OPERATOR_LOOKS_EVERY
    while found := judge.differences(inventory, observed):
        if world.time > end:
            world.note(f"the decision logs say:\n{judge.fleet.decisions(last=40)}")
            raise InvariantBroken(f"at rest, {len(found)} things are wrong: {'; '.join(found[:5])}")
        if world.time > looked + OPERATOR_LOOKS_EVERY:
            looked = world.time
            await people.look_after()
        await asyncio.sleep(1)
