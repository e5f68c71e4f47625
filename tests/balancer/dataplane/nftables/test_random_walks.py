"""Random walks on the real kernel beside the dataplane in memory: both hold the same at every step, whatever happened.

Between the steps the balancer restarts, and somebody edits the table with `nft`; then what is not as it should be is
made again, as the reconciler does it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from holdfast.balancer.dataplane.nftables import NftablesDataplane, TableShape
from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.dataplane.nftables.layout import belongs_to_a_vip, buckets_of, chain_of
from holdfast.balancer.dataplane.nftables.snapshot import table_of
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Value, Vip, VipKey, VipSettings, backend
from holdfast.netlink.nftables import elements
from holdfast.reconcile import Change
from holdfast.testing.fakes.dataplane import FakeDataplane
from tests.balancer.dataplane.conformance import change, made
from tests.balancer.dataplane.nftables.harness import TABLE, Ground

SIZES = (1021, 4093)
VIPS = (
    Vip.of("192.0.2.1", "tcp", 80),
    Vip.of("192.0.2.1", "udp", 80),
    Vip.of("192.0.2.1", "tcp", 0),
    Vip.of("192.0.2.2", "any", 0),
    Vip.of("2001:db8::1", "tcp", 443),
    Vip.of("2001:db8::1", "any", 0),
)
TAMPERING: Sequence[Sequence[str]] = (
    ("delete", "table", "inet", TABLE),
    ("flush", "table", "inet", TABLE),
    ("flush", "chain", "inet", TABLE, "output"),
    ("flush", "map", "inet", TABLE, "backend4-port"),
    ("flush", "map", "inet", TABLE, "vip6-port"),
    ("flush", "set", "inet", TABLE, "opened"),
    ("add", "rule", "inet", TABLE, "prerouting", "accept"),
    ("add", "element", "inet", TABLE, "vip4-address", "{ 192.0.2.3 : accept }"),
    ("add", "element", "inet", TABLE, "vip4-address", "{ 192.0.2.4 : goto refuse }"),
    ("add", "chain", "inet", TABLE, "mine"),
    ("add", "element", "inet", TABLE, "backend4-address", "{ 0x48000007 : 10.9.9.9 }"),
    ("add", "element", "inet", TABLE, "opened", "{ 0x48000009 }"),
)


class Walk:
    """One walk. `model` holds what should be there."""

    def __init__(self, ground: Ground, seed: int) -> None:
        self._ground = ground
        self._chance = random.Random(seed)
        self.model = FakeDataplane(live=frozenset({"sticky", "table_size"}))
        self.plane = NftablesDataplane(TableShape(TABLE))

    async def step(self) -> None:
        what = self._chance.random()
        if what < 0.1:
            self.plane.close()
            self.plane = NftablesDataplane(TableShape(TABLE))
        elif what < 0.25 and f"table inet {TABLE}" in self._ground.nft("list", "tables"):
            self._ground.nft(*self._chance.choice(TAMPERING))
            await self._repair()
        else:
            changes = [self._change() for _ in range(self._chance.randint(1, 6))]
            answers = await self.plane.apply(changes)
            assert list(answers) == list(await self.model.apply(changes))
        assert await self.plane.read() == self.model.objects

    def _change(self) -> Change[VipKey, Value]:
        vip = self._chance.choice(VIPS)
        kind = self._chance.random()
        if kind < 0.1:
            return change(VipKey(vip), None)
        if kind < 0.3:
            return change(VipKey(vip), VipSettings(self._chance.random() < 0.3, self._chance.choice(SIZES)))
        number = self._chance.randint(1, 5)
        one = backend(f"10.0.0.{number}" if vip.family == 4 else f"fd00::{number}", self._chance.choice([0, 80, 81]))
        if kind < 0.45:
            return change(VipKey(vip, one), None)
        weight = self._chance.choice([0, 1, 50, 100])
        return change(VipKey(vip, one), BackendEntry(weight, kill=not weight and self._chance.random() < 0.5))

    async def _repair(self) -> None:
        """As a full comparison does it: what is missing or different is made, what is too much goes."""
        await self.plane.read()
        for _ in range(3):
            found = await self.plane.read()
            wrong = {key: self.model.objects.get(key) for key in {*found, *self.model.objects}}
            wrong = {key: value for key, value in wrong.items() if found.get(key) != value}
            if not wrong:
                return
            await made(self.plane, *(change(key, value) for key, value in sorted(wrong.items(), key=lambda p: p[0])))
        pytest.fail("it does not come to rest")

    def _size(self, vip: Vip) -> int:
        settings = self.model.objects[VipKey(vip)]
        assert isinstance(settings, VipSettings)
        return settings.table_size

    def prove(self) -> None:
        """The kernel's tables are those of the model, and there is nothing else."""
        kernel = NftConnection(TABLE)
        try:
            rules, maps = kernel.rules(), kernel.maps()
            vips = [key.vip for key in self.model.objects if key.backend == NO_BACKEND]
            assert {name for name in rules if belongs_to_a_vip(name)} == set(map(chain_of, vips))
            assert {name for name in maps if belongs_to_a_vip(name)} == {
                buckets_of(vip, self._size(vip)) for vip in vips
            }
            assert self.plane._opened is not None
            services = self.plane._opened[1].read().contents
            for vip in vips:
                placed = services[vip].entries
                wanted = {one: each.entry for one, each in placed.items()}
                marks = {one: each.mark for one, each in placed.items()}
                size = self._size(vip)
                found = elements.buckets(kernel.elements(buckets_of(vip, size)), size)
                assert np.array_equal(found, table_of(wanted, marks, size))
        finally:
            kernel.close()


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_kernel_holds_what_was_written_whatever_happens_in_between(ground: Ground, seed: int) -> None:
    walk_on(ground, seed, steps=40)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_the_kernel_holds_what_was_written_over_long_walks(ground: Ground, seed: int) -> None:
    walk_on(ground, seed, steps=400)


def walk_on(ground: Ground, seed: int, steps: int) -> None:
    async def walk(_plane: NftablesDataplane) -> None:
        taken = Walk(ground, seed)
        try:
            for _ in range(steps):
                await taken.step()
            taken.prove()
        finally:
            taken.plane.close()

    ground.do(walk)
