"""A weight dataplane in memory, with the limits of VPP's load balancer.

It takes weights instead of our table, knows backends by address alone, scales weights that exceed its table,
makes changes one by one, and can read neither stickiness nor whether flows were killed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.balancer.dataplane.api import VipDataplaneInfo
from holdfast.balancer.maglev import table as maglev
from holdfast.balancer.maglev.churn import Churn
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import BackendEntry, Objects, Value, Vip, VipKey, VipSettings
from holdfast.testing.fakes.dataplane import FakeDataplane


@dataclass
class FakeWeightDataplane(FakeDataplane):
    write_only: frozenset[str] = frozenset({"sticky", "kill"})
    table_length: int = 128

    def canonical(self, vip: Vip, objects: Objects) -> Objects:
        # The number of backends changes with the configuration only: health must not rescale anybody.
        total = maglev.QUANTUM * (len(objects) - 1)
        return [(_key(key), self._value(value, total)) for key, value in objects]

    def describe(self) -> VipDataplaneInfo:
        return VipDataplaneInfo("weights", self.live, atomic=False, takes_table=False)

    def churn(self, before: Mapping[VipKey, Value], after: Mapping[VipKey, Value]) -> Churn:
        """Count the buckets that backends lose."""
        old, new = _shares(before, self.table_length), _shares(after, self.table_length)
        lost = sum(max(0, count - new.get(key, 0)) for key, count in old.items())
        return Churn(min(lost, self.table_length), self.table_length)

    def _value(self, value: Value, total: int) -> Value:
        if isinstance(value, VipSettings):
            return VipSettings(value.sticky, self.table_length, algorithm=0)
        weight = value.weight
        if total > self.table_length and weight:
            weight = max(1, weight * self.table_length // total)
        return BackendEntry(weight, value.kill)

    def _table(self, vip: Vip) -> tuple[tuple[BackendId, ...], maglev.Table]:
        serving = {key.backend: one.weight for key, one in self.entries.items() if key.vip == vip}
        return maglev.base_table(serving, 1021)


def _key(key: VipKey) -> VipKey:
    return VipKey(key.vip, key.backend._replace(port=0))


def _shares(objects: Mapping[VipKey, Value], length: int) -> dict[VipKey, int]:
    weights = {key: value.weight for key, value in objects.items() if isinstance(value, BackendEntry)}
    total = sum(weights.values())
    return {key: length * weight // total for key, weight in weights.items() if weight}
