"""Rules of the status workers: what follows from reports and inventory rows. Pure; time is an argument.

`agents` and `endpoints` are the two `StatusRules`; `bindings` maps endpoints to their hosts. `staleness` judges old
reports, `mass_loss` is the gate for many losses at once, `migration` decides when a live migration has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.reconcile import Change
from holdfast.store.mirror.pending import Delta

T = TypeVar("T")
V = TypeVar("V", bound=msgspec.Struct)


class StatusRules(Protocol[T, V]):
    """The difference between the two status workers. `T` is a report in the store, `V` a row of the inventory."""

    region: Region
    prefix: bytes
    reports: Mapping[bytes, T]
    bad: Mapping[bytes, Bad]

    @property
    def name(self) -> str:
        """Name of the worker."""
        ...

    @property
    def kind(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def blank(self) -> V:
        """Row without content; stands for a row that cannot be read."""
        ...

    @property
    def dated(self) -> bool:
        """True if reports carry the time at which they were made."""
        ...

    @property
    def routine(self) -> Callable[[Change[bytes, V]], bool] | None:
        """Recognises changes that come all the time, if there are any."""
        ...

    def decode(self, key: bytes, value: bytes) -> T | Bad: ...
    def affected(self, deltas: Sequence[Delta[T]]) -> Iterable[bytes]: ...
    def take_reported(self, fresh: Iterable[bytes]) -> Collection[str]: ...
    def reporting(self) -> int: ...
    def keys(self) -> Collection[bytes]: ...
    def want(self, key: bytes, last: V | None) -> V | None: ...
    def is_alive(self, value: V) -> bool: ...
    def is_loss(self, old: V, new: V | None) -> bool: ...
    def orphans(self) -> Mapping[str, int]: ...
    def host(self, key: bytes) -> str: ...
    def object_name(self, key: bytes) -> str: ...
    def show(self, key: bytes) -> str: ...
    def words(self, value: V) -> str:
        """State of a row in a sentence about many rows."""
        ...

    def in_full(self, value: V) -> str: ...
    def states(self, rows: Iterable[V]) -> Mapping[str, int]:
        """Number of rows by state."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Further counts for the metrics."""
        ...
