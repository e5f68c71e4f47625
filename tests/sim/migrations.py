"""Live migrations in the simulated fleet: they begin, are cancelled, finish_migration, and are redirected on the way.

In both shapes: as Calico's driver writes them, with an endpoint at the target from the beginning, and as our own
inventory does, which leaves the endpoint where it is until it is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName
from holdfast.model.calico.host import Host
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.store.api import Delete, Operation
from tests.agent.harness import ME, REGION, Fleet
from tests.sim.expected_state import ExpectedState

Operations = Sequence[Operation]


def begin_migration(fleet: Fleet, random: Random, truth: ExpectedState) -> Operations:
    """Begin a migration, at times to a host where something was left of the workload; all writes in one revision."""
    hosts = [one.metadata.name for _, one in truth.objects.values() if isinstance(one, Host)]
    endpoints = _endpoints(truth)
    settled = [one for one in endpoints.values() if one.spec.node in (*hosts, ME)]
    places = [*hosts, *[ME] * len(hosts)]
    left = {one.source for _, one in truth.objects.values() if isinstance(one, Migration)}
    taken = left if random.random() < 0.2 else endpoints.keys()  # nobody goes round in circles
    begun = [(one, to) for one in settled for to in places if to != one.spec.node]
    begun = [(one, to) for one, to in begun if one.name._replace(node=to) not in taken]
    if not begun:
        return []
    one, to = random.choice(begun)
    workload, spec = one.spec.workload, one.spec
    at_target = [fleet.runs(workload, to, *spec.ip_networks)] if random.random() < 0.5 else []
    return [fleet.migrates(workload, spec.node, to), *at_target]


def cancel_migration(_fleet: Fleet, random: Random, truth: ExpectedState) -> Operations:
    """Cancel a migration, and delete the endpoint at its target if there is one."""
    one = _some_migration(random, truth)
    if one is None:
        return []
    at_target = [Delete(_at(one.target))] if _at(one.target) in truth.objects else []
    return [*at_target, Delete(MIGRATION.key(REGION, one.target))]


def finish_migration(fleet: Fleet, random: Random, truth: ExpectedState) -> Operations:
    """Move a workload to the target of its migration, in one revision."""
    return [step for step, _ in steps(fleet, random, truth)]


def steps(fleet: Fleet, random: Random, truth: ExpectedState) -> Sequence[tuple[Operation, float]]:
    """Return the same writes one by one, with the pause after each; some go to another host instead. Calico's driver
    deletes the migration first, and then the endpoint that is no longer needed, also after a cancelled migration."""
    one = _some_migration(random, truth)
    endpoint = _endpoints(truth).get(one.source) if one is not None else None
    if one is None or endpoint is None:
        return []
    hosts = [each.metadata.name for _, each in truth.objects.values() if isinstance(each, Host)]
    to = one.target.node if random.random() < 0.8 or not hosts else random.choice(hosts)
    put = fleet.runs(one.source.workload, to, *endpoint.spec.ip_networks)
    made: Operations = [put, Delete(_at(one.source)), Delete(MIGRATION.key(REGION, one.target))]
    if _at(one.target) in truth.objects and random.random() < 0.6:
        made = [made[-1], Delete(_at(random.choice([one.source, one.target])))]
    elif to == one.source.node:
        made = []
    return [(step, random.choice([0.0, 0.0, 0.01, 0.5])) for step in made]


def _endpoints(truth: ExpectedState) -> dict[EndpointName, Endpoint]:
    return {one.name: one for _, one in truth.objects.values() if isinstance(one, Endpoint)}


def _some_migration(random: Random, truth: ExpectedState) -> Migration | None:
    found = [one for _, one in truth.objects.values() if isinstance(one, Migration)]
    to_us = [one for one in found if one.target.node == ME]
    return random.choice(to_us or found) if found else None


def _at(name: EndpointName) -> bytes:
    return ENDPOINT.key(REGION, name)
