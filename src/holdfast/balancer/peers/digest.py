"""Digests: short hashes that show whether two peers program the same table, and if not, which input differs.

The table is a function of three inputs: configuration, health and intents. Each input has its own digest, so that
balancers with different tables can show the reason. Order and the names of frontends do not change the table's digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.balancer.health import HealthState
from holdfast.balancer.vip import Value, VipKey, VipSettings

INPUTS = ("configuration", "health", "intents")


class Digests(msgspec.Struct, frozen=True):
    """Digests of one balancer's table and of its inputs."""

    table: str
    configuration: str
    health: str
    intents: str

    def differing(self, other: Digests) -> tuple[str, ...]:
        """Inputs that differ; empty when the tables are equal, `dataplane` when only the tables differ."""
        if self.table == other.table:
            return ()
        return tuple(name for name in INPUTS if getattr(self, name) != getattr(other, name)) or ("dataplane",)


def of_table(objects: Iterable[tuple[VipKey, Value]]) -> str:
    """Digest of what decides the buckets: settings, with the number of buckets and the algorithm, and weights.

    Killed flows do not change a table.
    """
    rows = [(*key.vip, *key.backend, _decisive(value)) for key, value in sorted(objects, key=lambda pair: pair[0])]
    return _hash(rows)


def _decisive(value: Value) -> object:
    if isinstance(value, VipSettings):
        return "damaged" if value.damaged else (value.sticky, *_shape(value))
    return value.base, value.weight


def _shape(settings: VipSettings) -> tuple[int, int]:
    """Number of buckets and algorithm, which shape the table (protection: B33)."""
    return settings.table_size, settings.algorithm


def of_health(states: Mapping[str, HealthState]) -> str:
    """Digest of the backends' states; paused and disabled count as intents."""
    plain = {HealthState.PAUSED: "held", HealthState.DISABLED: "held"}
    return _hash((name, plain.get(state, state.value)) for name, state in sorted(states.items()))


def of_struct(value: object) -> str:
    """Digest of any struct; maps are sorted."""
    return _finish(msgspec.json.encode(value, order="deterministic"))


def _hash(rows: Iterable[tuple[object, ...]]) -> str:
    return _finish(msgspec.json.encode([[str(cell) for cell in row] for row in rows]))


def _finish(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
