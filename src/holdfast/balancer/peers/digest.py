"""Digests: short hashes by which peers recognise that they program the same, and if not, which input differs.

The table is a function of three inputs: configuration, health and intents. Each has a digest of its own, so that two
balancers with different tables can say why. Order never matters, and neither do names of frontends in the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.balancer.health import HealthState
from holdfast.balancer.vip import Value, VipKey, VipSettings

INPUTS = ("configuration", "health", "intents")


class Digests(msgspec.Struct, frozen=True):
    """What one balancer programs, and from what."""

    table: str
    configuration: str
    health: str
    intents: str

    def differing(self, other: Digests) -> tuple[str, ...]:
        """Which inputs differ from a peer's; empty when the tables are equal. `dataplane`: all inputs are equal."""
        if self.table == other.table:
            return ()
        return tuple(name for name in INPUTS if getattr(self, name) != getattr(other, name)) or ("dataplane",)


def of_table(objects: Iterable[tuple[VipKey, Value]]) -> str:
    """Of what decides the buckets: settings and weights. Killed flows leave no trace in a table."""
    return _hash((*key.vip, *key.backend, _decisive(value)) for key, value in sorted(objects, key=lambda pair: pair[0]))


def _decisive(value: Value) -> object:
    if isinstance(value, VipSettings):
        return "damaged" if value.damaged else value.sticky
    return value.weight


def of_health(states: Mapping[str, HealthState]) -> str:
    """Of what is known of each backend; paused and disabled are an operator's doing and count as intents."""
    plain = {HealthState.PAUSED: "held", HealthState.DISABLED: "held"}
    return _hash((name, plain.get(state, state.value)) for name, state in sorted(states.items()))


def of_struct(value: object) -> str:
    """Of a configuration, or of any other struct; maps are sorted."""
    return _finish(msgspec.json.encode(value, order="deterministic"))


def _hash(rows: Iterable[tuple[object, ...]]) -> str:
    return _finish(msgspec.json.encode([[str(cell) for cell in row] for row in rows]))


def _finish(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
