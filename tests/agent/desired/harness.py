"""Harness of the migration tests: a fleet in which workload w leaves host a, and the shapes of its route."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.agent.claims import LocalRoute, RemoteRoute, Shape
from holdfast.agent.commands.control import AgentCommands
from holdfast.agent.desired.slim_endpoint import SlimEndpoint, decode_endpoint
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.model.calico.host import HOST
from holdfast.store.api import Operation, Put
from tests.agent.harness import ME, REGION, Fleet, HostHarness
from tests.agent.test_reconciler import P1

HERE, THERE, ELSEWHERE = LocalRoute("tap-w"), RemoteRoute("10.99.0.1"), RemoteRoute("10.99.0.2")
PREFIX, SECOND, THIRD = "10.65.0.1/32", "10.65.0.2/32", "10.65.0.3/32"
ROTTEN = b'{"kind": "LiveMigration", '


async def on_a(site: HostHarness) -> list[Shape | None]:
    """Put w on a, with a host b; return the shapes of its route from now on."""
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
    site.start()
    await site.settled()
    return seen(site)


async def begun(site: HostHarness, to: str = ME) -> list[Shape | None]:
    """Put w on a, migrating to a host; return the shapes of its route from now on."""
    fleet = site.fleet()
    fleet.write(fleet.joins(ME, 7), fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", "a", PREFIX))
    site.start()
    await site.settled()
    assert site.shapes[P1] == THERE
    fleet.write(fleet.migrates("w", "a", to))
    await asyncio.sleep(5)
    return seen(site)


def seen(site: HostHarness) -> list[Shape | None]:
    """Record the shapes of the workload's route from now on."""
    shapes: list[Shape | None] = []
    site.kernel.observers.append(lambda key, shape: shapes.append(shape) if key == P1 else None)
    return shapes


def steps(fleet: Fleet, to: str = ME) -> Sequence[Operation]:
    """A move, in the order in which it is written."""
    return fleet.runs("w", to, PREFIX), fleet.ends("w", "a"), fleet.arrived("w", to)


def mute(site: HostHarness) -> None:
    site.clients["region"].link.mute_watches(HOST.prefix(REGION))


def slim(endpoint: Endpoint) -> SlimEndpoint:
    """Return an endpoint as the agent keeps it."""
    found = decode_endpoint(ENDPOINT.key(REGION, endpoint.name), ENDPOINT.encode(endpoint))
    assert isinstance(found, SlimEndpoint)
    return found


def statuses(site: HostHarness) -> dict[str, EndpointState]:
    found = AgentCommands(site.running, ME, "boot-1", site.node.clock).endpoints()
    assert found is not None
    return {str(name): state for name, state in found.items()}


async def under_way_to_b(site: HostHarness, source: str) -> list[Shape | None]:
    """Migrate as Calico's driver does, with an endpoint at the target; return the shapes of the route from now on."""
    fleet = site.fleet()
    fleet.write(fleet.joins("a", 1), fleet.joins("b", 2), fleet.runs("w", source, PREFIX))
    site.start()
    await site.settled()
    shapes = seen(site)
    fleet.write(fleet.migrates("w", source, "b"), fleet.runs("w", "b", PREFIX))
    await asyncio.sleep(5)
    return shapes


async def restarted_among(site: HostHarness, rotten: Sequence[str], to: str) -> None:
    """Restart the agent with these values unreadable."""
    fleet = site.fleet()
    keys = {"source": fleet.runs("w", "a", PREFIX).key, "migration": fleet.migrates("w", "a", to).key}
    site.node.kill()
    fleet.write(*(Put(keys[one], ROTTEN) for one in rotten))
    site.start()
    await asyncio.sleep(30)
