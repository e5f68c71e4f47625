"""Adopted entries: what the dataplane held at the start, and how health and slow starts go on from there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.balancer.desired import fail_back, slow_start
from holdfast.balancer.desired.fail_back import PoolMemory
from holdfast.balancer.desired.frontend import asked_weight
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend
from holdfast.balancer.vip import BackendEntry, Canonical, VipKey
from holdfast.model.base.time import Instant


@dataclass(frozen=True, slots=True)
class AdoptedEntries:
    """Entries by the key with which they are wanted."""

    entries: Mapping[VipKey, BackendEntry] = field(default_factory=dict)
    serving: frozenset[BackendId] | None = None
    """Backends that got new flows; None until the dataplane has been read."""

    @classmethod
    def of(cls, entries: Mapping[VipKey, BackendEntry]) -> AdoptedEntries:
        return cls(entries, frozenset(key.backend for key, entry in entries.items() if entry.weight))

    def is_serving(self, backend: ResolvedBackend) -> bool:
        # protection: B25
        return self.serving is None or backend.identity in self.serving

    def pool(self, frontend: ResolvedFrontend, backends: Mapping[str, ResolvedBackend]) -> PoolMemory | None:
        """Memory of the pool that the dataplane was serving with."""
        serving = [
            index
            for index, pool in enumerate(frontend.pools)
            if any(self._weight(frontend, backends[name]) for name, _ in pool)
        ]
        return fail_back.adopted(serving[0]) if serving else None

    def resumed(
        self,
        frontend: ResolvedFrontend,
        name: str,
        backends: Mapping[str, ResolvedBackend],
        asked: Mapping[tuple[str, str], int],
        canonical: Canonical,
        now: Instant,
    ) -> Instant:
        """Start of a slow start that goes on from the weight found; a restart begins none (protection: B23). `asked`
        has the weights that operators set."""
        pool = next(pool for pool in frontend.pools if any(each == name for each, _ in pool))
        found = {each: self._weight(frontend, backends[each]) for each, _ in pool}
        own = found[name]
        if own is None or not any(found.values()):
            return slow_start.DONE
        if not own:
            return now
        weights = _weights_of_steps(frontend, pool, name, backends, asked, canonical)
        return slow_start.resumed(weights, own, frontend.config.slow_start, now)

    def _weight(self, frontend: ResolvedFrontend, backend: ResolvedBackend) -> int | None:
        entry = self.entries.get(VipKey(frontend.vip, backend.identity))
        return None if entry is None else entry.weight


def _weights_of_steps(
    frontend: ResolvedFrontend,
    pool: Iterable[tuple[str, int]],
    name: str,
    backends: Mapping[str, ResolvedBackend],
    asked: Mapping[tuple[str, str], int],
    canonical: Canonical,
) -> list[int]:
    """Weight of a backend in each step of its slow start, as the dataplane holds it."""
    by_operator = {each: asked_weight(asked, frontend.name, backends[each]) for each, _ in pool}
    full = {each: weight if (own := by_operator[each]) is None else own for each, weight in pool}
    bases = {each: max(full[each], weight) for each, weight in pool}
    others = [each for each in full if each != name]
    found = []
    for weight in slow_start.weights(full[name]):
        serving = [(name, weight), *((each, full[each]) for each in others)]
        entries = [
            (VipKey(frontend.vip, backends[each].identity), BackendEntry(own, base=bases[each]))
            for each, own in serving
        ]
        _, (_, entry), *_ = canonical(frontend.vip, [(VipKey(frontend.vip), frontend.settings), *entries])
        assert isinstance(entry, BackendEntry)
        found.append(entry.weight)
    return found
