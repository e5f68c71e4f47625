"""Random walks on the kernel and the fake kernel: whatever is applied, both hold the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest

from holdfast.agent.claims import (
    ClaimKey,
    FdbEntry,
    LocalRoute,
    Mode,
    NeighbourEntry,
    NexthopEntry,
    RemoteRoute,
    Shape,
    depends_on,
    forwarding,
    neighbour,
    nexthop,
    route,
)
from holdfast.agent.dataplane.api import ClaimChange
from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.testing.fakes.kernel import FakeKernel
from tests.agent.dataplane.linux.harness import HostHarness, creates, deletes, replace

STEPS, PEERS, PREFIXES = 120, 6, 12
TAPS = ("tap1", "tap2")


class Walk:
    """Draws the next batch of changes: those that the agent's gates would let through."""

    def __init__(self, seed: int, held: Mapping[ClaimKey, Shape]) -> None:
        self._chance = random.Random(seed)
        self._held = held

    def step(self) -> list[ClaimChange]:
        """Up to four objects come, change or go."""
        made: dict[ClaimKey, ClaimChange] = {}
        for _ in range(self._chance.randint(1, 4)):
            change = self._change()
            if change is not None and not self._touches(change, made):
                made[change.key] = change
        ordered = sorted(made)
        return [made[key] for key in reversed(ordered) if made[key].new is None] + [
            made[key] for key in ordered if made[key].new is not None
        ]

    def _touches(self, change: ClaimChange, made: Mapping[ClaimKey, ClaimChange]) -> bool:
        """Return whether it is, or depends on, an object that this batch already changes."""
        feet = {
            foot
            for one in made.values()
            if (owned := one.new or one.old)
            for foot in depends_on(one.key, owned.value.shape)
        }
        owned = change.new or change.old
        assert owned is not None
        return (
            change.key in made
            or change.key in feet
            or not made.keys().isdisjoint(depends_on(change.key, owned.value.shape))
        )

    def _change(self) -> ClaimChange | None:
        key, shape = self._object()
        old = self._held.get(key)
        if old is not None and self._chance.random() < 0.4:
            is_leaned_upon = any(key in depends_on(other, it) for other, it in self._held.items())
            return None if is_leaned_upon else deletes({key: old})[0]
        if not self._held.keys() >= set(depends_on(key, shape)):
            return None
        return creates({key: shape})[0] if old is None else replace(key, old, shape)

    def _object(self) -> tuple[ClaimKey, Shape]:
        family = self._chance.choice((4, 6))
        number, other = self._chance.randint(1, PEERS), self._chance.randint(1, PEERS)
        match self._chance.randrange(4):
            case 0:
                return forwarding(family, _mac(family, number)), FdbEntry(_underlay(family, other))
            case 1:
                return neighbour(_tunnel(family, number)), NeighbourEntry(_mac(family, other))
            case 2:
                return nexthop(_tunnel(family, number)), NexthopEntry(Mode.VXLAN)
        tap = LocalRoute(self._chance.choice(TAPS))
        way = tap if self._chance.random() < 0.3 else RemoteRoute(_tunnel(family, number))
        return route(_prefix(family, self._chance.randint(1, PREFIXES))), way


@pytest.mark.parametrize("seed", range(3))
def test_the_kernel_holds_what_the_kernel_in_memory_holds_also_over_restarts(site: HostHarness, seed: int) -> None:
    for tap in TAPS:
        site.interface(tap)
    fake = FakeKernel(interfaces=set(TAPS))
    walk = Walk(seed, fake.objects)

    async def life(dataplane: LinuxDataplane) -> None:
        for _ in range(STEPS // 4):
            changes = walk.step()
            answers = list(await dataplane.apply(changes))
            assert answers == [None] * len(changes)
            await fake.apply(changes)
            keys = {change.key for change in changes}
            assert await dataplane.read(keys) == {key: fake.objects[key] for key in keys if key in fake.objects}
        assert await dataplane.read() == fake.objects

    for _ in range(4):
        with site.dataplane() as dataplane:
            asyncio.run(life(dataplane))
    assert fake.objects


def _mac(family: int, number: int) -> str:
    return f"02:00:00:00:{family:02x}:{number:02x}"


def _underlay(family: int, number: int) -> str:
    return f"192.0.2.{number}" if family == 4 else f"2001:db8::{number:x}"


def _tunnel(family: int, number: int) -> str:
    return f"10.9.0.{number}" if family == 4 else f"fd00:9::{number:x}"


def _prefix(family: int, number: int) -> str:
    return f"10.28.{number}.0/24" if family == 4 else f"fd00:28:{number:x}::/64"
