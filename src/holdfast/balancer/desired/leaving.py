"""Backends that leave a frontend: how long each of them goes on serving, and when its flows end.

Make before break (B35): a backend that gets another address serves at the old one until the new one has its first
result. Where others replace all backends that serve, these serve until each of the others has its first result. Both
last for `max_delay` at most; a backend that is configured again meanwhile goes on with the health that it had.

Any other backend that leaves gets no new flow at once (B26). Its flows are ended half a second later, so that requests
under way can end. That time begins when the dataplane has taken weight 0, not when the configuration was read: a pause,
the warm-up or a restart may lie in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.balancer.desired.pools import Serving, Share
from holdfast.balancer.health import Health, HealthState
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend, Services
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Value, Vip, VipKey
from holdfast.model.base.time import NEVER, Duration, Instant

LEAVES_AFTER = Duration(milliseconds=500)
"""Time for which a backend that has left is programmed with weight 0 before its flows are ended."""


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A backend before it got another address. It serves as it did until the new address has a first result."""

    backend: ResolvedBackend
    health: Health
    until: Instant
    """When it ends at the latest."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A backend that serves in a pool until those that replace it have their first results."""

    backend: ResolvedBackend
    health: Health
    pool: int
    share: Share
    until: Instant
    """When it ends at the latest."""


class LeavingBackends:
    """Backends that leave, from the reload that removes them."""

    def __init__(self, max_delay: Duration) -> None:
        self._max_delay = max_delay
        self.predecessors: dict[str, Predecessor] = {}
        """Old addresses that serve until the new ones have a first result, by backend."""
        self.replaced: dict[Vip, tuple[Replaced, ...]] = {}
        """Backends that serve until those in their place have a first result."""
        self.programmed: dict[Vip, dict[BackendId, Instant | None]] = {}
        """Entries in the dataplane: until when one of weight 0 keeps its flows if it leaves; None while it gets new
        ones."""

    def adopt(self, objects: Mapping[VipKey, Value]) -> None:
        """Start from what the dataplane holds. The flows of an entry of weight 0 had their time before."""
        self.programmed = {}
        for key, value in objects.items():
            self.on_programmed(key, value, NEVER)

    def on_programmed(self, key: VipKey, value: Value | None, now: Instant) -> None:
        """Note what the dataplane holds from now on; None: nothing."""
        if key.backend == NO_BACKEND:
            if value is None:
                self.programmed.pop(key.vip, None)
            return
        entries = self.programmed.setdefault(key.vip, {})
        if not isinstance(value, BackendEntry):
            entries.pop(key.backend, None)
        elif value.weight:
            entries[key.backend] = None
        elif entries.get(key.backend, NEVER) is None:  # it got new flows until now
            entries[key.backend] = now + LEAVES_AFTER
        else:
            entries.setdefault(key.backend, NEVER)

    def on_reload(
        self,
        before: Services,
        after: Services,
        known: Mapping[str, Health],
        health: Mapping[str, Health],
        served: Mapping[Vip, Serving],
        now: Instant,
    ) -> None:
        """Note who leaves with a reload. `known` and `health`: the health before and after it; `served`: what the
        frontends served with before."""
        self.predecessors = self._kept_predecessors(before, after, known, health, now)
        self.replaced = {
            frontend.vip: found
            for frontend in after.frontends.values()
            if (found := tuple(self._kept_replaced(frontend, before, after, known, health, served, now)))
        }

    def still_serving(self, now: Instant) -> Mapping[BackendId, tuple[ResolvedBackend, Health]]:
        """Backends that are no longer configured and serve, with the health with which they do: a change that is taken
        back before the first result goes on from there (B35)."""
        kept: list[Predecessor | Replaced] = list(self.predecessors.values())
        kept += [one for served in self.replaced.values() for one in served]
        return {one.backend.identity: (one.backend, one.health) for one in kept if now < one.until}

    def on_known(self, backend: str, services: Services, health: Mapping[str, Health]) -> None:
        """Note that a backend is no longer unknown: what served in its place leaves."""
        self.predecessors.pop(backend, None)
        for frontend in (services.frontends[name] for name in services.users[backend]):
            served = self.replaced.pop(frontend.vip, ())
            if still := tuple(each for each in served if _is_undecided(frontend, each.pool, health)):
                self.replaced[frontend.vip] = still

    def _kept_predecessors(
        self,
        before: Services,
        after: Services,
        known: Mapping[str, Health],
        health: Mapping[str, Health],
        now: Instant,
    ) -> dict[str, Predecessor]:  # protection: B35
        """B35: backends that serve at their old address until the new one has a first result, or `max_delay`."""
        kept: dict[str, Predecessor] = {}
        for name in (name for name in after.backends if health[name].is_newcomer):
            old = before.backends.get(name)
            if name in self.predecessors:
                kept[name] = self.predecessors[name]
            elif old is not None and known[name].state is HealthState.UP:
                kept[name] = Predecessor(old, known[name], now + self._max_delay)
        return kept

    def _kept_replaced(
        self,
        frontend: ResolvedFrontend,
        before: Services,
        after: Services,
        known: Mapping[str, Health],
        health: Mapping[str, Health],
        served: Mapping[Vip, Serving],
        now: Instant,
    ) -> Iterator[Replaced]:  # protection: B35
        """B35: backends that served in a pool where now nobody can serve, and somebody is unknown."""
        serving = served.get(frontend.vip)
        if serving is None or serving.active is None or serving.panic or serving.active >= len(frontend.pools):
            return
        pool = [name for name, _ in frontend.pools[serving.active]]
        has_other = any(health[name].state is HealthState.UP or name in self.predecessors for name in pool)
        earlier = {one.backend.name: one for one in self.replaced.get(frontend.vip, ()) if one.pool == serving.active}
        if (has_other and not earlier) or not _is_undecided(frontend, serving.active, health):
            return
        names = {name: after.backends[name].identity for name in frontend.backends()}
        for name, share in serving.shares.items():
            one = earlier.get(name)
            if one is None and name in before.backends and not has_other:
                one = Replaced(before.backends[name], known[name], serving.active, share, now + self._max_delay)
            if one and share.weight and name not in names and one.backend.identity not in names.values():
                yield one


def _is_undecided(frontend: ResolvedFrontend, pool: int, health: Mapping[str, Health]) -> bool:
    """Tell whether a pool has backends of which nothing is known yet."""
    return any(health[name].state is HealthState.UNKNOWN for name, _ in frontend.pools[pool])
