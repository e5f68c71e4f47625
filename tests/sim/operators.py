"""People who edit the inventory of a simulated fleet: hosts, networks, endpoints that move and migrate, frontends.

What breaks a rule is refused, as it would be outside; so some of their changes are not made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from sqlalchemy import Engine

from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.inventory.changes import ChangeKind, Edit, EditRefused, WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec, read_name
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.fleet.network import NETWORK, NETWORK_LABEL, Network
from holdfast.testing import World
from tests.sim.servers import REGION

ENDPOINTS = 25
HOSTS = 4
FEW = 3
"""Networks, frontends and backends."""

Changes = Sequence[WantedObject]


def _ignore(_edits: Sequence[Edit]) -> None:
    return None


async def edit(world: World, engine: Engine, told: Callable[[Sequence[Edit]], None] = _ignore) -> None:
    """Change something every now and then, until cancelled. `told` gets what was changed, at that moment."""
    editor, random = Editor(engine, REGION), world.stream("people")
    while True:
        await asyncio.sleep(random.uniform(0.05, 1.5))
        draw: Callable[[Random], Changes] = random.choices(
            [_endpoint, _gone, _migration, _host, _network, _frontend, _backend, _drawn],
            weights=[9, 3, 6, 1, 2, 2, 1, 1],
        )[0]
        try:
            edits = editor.change(draw(random), who="people")
        except EditRefused as refusal:
            world.note(f"people are refused: {refusal}")
            continue
        told(edits)
        for one in edits:
            if one.did is not ChangeKind.UNCHANGED:
                world.note(f"people: {one.kind.name} {one.name} {one.did.value}, revision {one.revision}")


def _endpoint(random: Random) -> Changes:
    number, on = random.randrange(ENDPOINTS), random.randrange(-FEW, FEW)
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=f"w{number}",
        node=f"h{random.randrange(HOSTS)}",
        endpoint="eth0",
        ipv4_gateway=f"10.255.0.{random.randrange(250)}",
        ip_networks=(f"10.0.0.{number}/32",),
    )
    labels = {NETWORK_LABEL: f"net-{on}"} if on >= 0 else {}
    here = wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec, labels=labels))
    return [_as_network(on, random), here] if on >= 0 and random.random() < 0.3 else [here]


def _gone(random: Random) -> Changes:
    return [WantedObject(ENDPOINT, f"holdfast-w{random.randrange(ENDPOINTS)}-eth0")]


def _migration(random: Random) -> Changes:
    """Begin, redirect or cancel a migration; it arrives when its endpoint is put at the target."""
    name = f"holdfast-w{random.randrange(ENDPOINTS)}-eth0"
    if random.random() < 0.2:
        return [WantedObject(MIGRATION, name)]
    number = random.randrange(HOSTS)
    target = read_name(f"h{number}-{name}")
    move = wanted(MIGRATION, REGION, target, Migration.of(REGION, target, target.node))
    return [_as_host(number, random), move] if random.random() < 0.5 else [move]


def _host(random: Random) -> Changes:
    number = random.randrange(HOSTS)
    if random.random() < 0.3:
        return [WantedObject(HOST, f"h{number}")]
    return [_as_host(number, random)]


def _as_host(number: int, random: Random) -> WantedObject:
    spec = HostSpec(bgp=Bgp(ipv4_address=f"192.0.2.{10 * number + random.randrange(10)}/24"))
    return wanted(HOST, REGION, f"h{number}", Host.of(f"h{number}", spec))


def _network(random: Random) -> Changes:
    number = random.randrange(FEW)
    return [WantedObject(NETWORK, f"net-{number}") if random.random() < 0.3 else _as_network(number, random)]


def _as_network(number: int, random: Random) -> WantedObject:
    prefixes = ("10.0.0.0/24", *([f"10.{random.randrange(1, 9)}.0.0/16"] if random.random() < 0.5 else ()))
    return wanted(NETWORK, REGION, f"net-{number}", Network(prefixes=prefixes))


def _frontend(random: Random) -> Changes:
    """Return a frontend with everything that it needs: none of it can exist alone."""
    numbers = random.sample(range(FEW), random.randint(1, FEW))
    pool = Pool(backends={f"b{number}": PoolMember(weight=random.randint(1, 100)) for number in numbers})
    made = Frontend(address="203.0.113.1", port=80 + (port := random.randrange(FEW)), pools=(pool,))
    frontend = wanted(FRONTEND, REGION, f"f{port}", made)
    check = wanted(HEALTH_CHECK, REGION, "http", HealthCheck(type="http"))
    return [frontend, check, *(_as_backend(number, random) for number in numbers)]


def _backend(random: Random) -> Changes:
    return [_as_backend(random.randrange(FEW), random)]


def _as_backend(number: int, random: Random) -> WantedObject:
    made = Backend(address=f"198.51.100.{random.randrange(1, 250)}", port=80, healthcheck=("http",))
    return wanted(BACKEND, REGION, f"b{number}", made)


def _drawn(random: Random) -> Changes:
    """Delete a frontend, sometimes with its backends, which others may need."""
    gone = [WantedObject(FRONTEND, f"f{random.randrange(FEW)}")]
    return gone + ([WantedObject(BACKEND, f"b{number}") for number in range(FEW)] if random.random() < 0.5 else [])
