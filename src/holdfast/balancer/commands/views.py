"""Views of the balancer for commands and the API: frontends with pools, backends with their history. Read-only."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.balancer.commands.announce_status import unverified_since
from holdfast.balancer.commands.shares import NO_SHARES, Shares
from holdfast.balancer.commands.troubles import troubles
from holdfast.balancer.desired.frontend import DesiredFrontend
from holdfast.balancer.desired.state import HealthTransition
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend
from holdfast.balancer.vip import BackendEntry, VipKey, shown
from holdfast.config.schema.scalars import show_duration
from holdfast.model.base.time import Instant
from holdfast.model.control.intent import Intent
from holdfast.model.control.scope import ScopeKind


class BalancerViews:
    """Views of a reconciler at `now`, the time of the request."""

    def __init__(self, reconciler: VipReconciler, now: Instant) -> None:
        self._reconciler = reconciler
        self._balancer = reconciler.balancer
        self._now = now

    def status(self, store_problem: str = "") -> dict[str, Any]:
        """The whole state, as `holdfast balancer status` and the API show it."""
        services, warm = self._balancer.services, self._balancer.warm
        tracked = self._reconciler.meter.tracked()
        return {
            "warm_up": warm.phase(self._now).value,
            "tracked": None if tracked is None else {**tracked._asdict(), "nearly_full": tracked.nearly_full},
            "prober_silent_s": self._age(self._reconciler.health.silent_since),
            "store_problem": store_problem,
            "dataplane": self._reconciler.dataplane.describe().name,
            "digests": msgspec.to_builtins(self._reconciler.digests()),
            "frontends": [self.frontend(one) for one in services.frontends.values()],
            "backends": [self.backend(one) for one in services.backends.values()],
            "missing": dict(services.missing),
            "troubles": msgspec.to_builtins(troubles(self._reconciler, self._now)),
        }

    def frontend(self, frontend: ResolvedFrontend) -> dict[str, Any]:
        wanted = self._balancer.desired(frontend, self._now)
        serving = wanted.serving
        held = self._reconciler.target.held
        pause = self._balancer.pauses.get(frontend.name)
        return {
            "name": frontend.name,
            "vip": str(frontend.vip),
            "description": frontend.config.description or "",
            "state": serving.state.value,
            "panic": serving.panic,
            "paused": None if pause is None else {"who": pause.who, "why": pause.why, "until": _text(pause.until)},
            "announce": self._announce(frontend),
            "active_pool": serving.active,
            "fail_back": self._fail_back(frontend, wanted),
            "programmed": VipKey(frontend.vip) in held,
            "pools": [
                [self._member(frontend, name, weight, wanted) for name, weight in pool] for pool in frontend.pools
            ],
            "leaving": self._leaving(frontend, wanted),
        }

    def _leaving(self, frontend: ResolvedFrontend, wanted: DesiredFrontend) -> list[dict[str, Any]]:
        """Entries of backends that are no longer configured; one that gets new flows waits for a gate."""
        entries, members = self._reconciler.target.entries(frontend.vip), set(wanted.keys.values())
        return [
            {"address": shown(one), "programmed": entry.weight}
            for one, entry in sorted(entries.items())
            if VipKey(frontend.vip, one) not in members
        ]

    def _announce(self, frontend: ResolvedFrontend) -> dict[str, Any] | None:
        """State of the announcement, as the announcer last reported it."""
        if frontend.config.announce is None:
            return None
        gate, host = self._reconciler.announced_gate, frontend.vip.host
        device, why = frontend.config.announce.device, gate.outstanding.get(host)
        limit, since = frontend.config.withdraw_after, unverified_since(self._reconciler, frontend)
        if why is None and limit and since is not None and self._now - since >= limit:
            why = f"the health of its backends could not be verified for {show_duration(limit)} (withdraw-after)"
        return {"device": device, "announced": host in gate.announced, "why": why}

    def _fail_back(self, frontend: ResolvedFrontend, wanted: DesiredFrontend) -> dict[str, Any] | None:
        """The earlier pool that takes over next, once its fail-back delay is over."""
        active, memory = wanted.serving.active, wanted.memory
        if active is None or memory is None:
            return None
        waiting = [
            (since + frontend.config.fail_back_delay, pool)
            for pool, since in memory.able_since.items()
            if pool < active
        ]
        return {"pool": min(waiting)[1], "in_s": (min(waiting)[0] - self._now).total_seconds()} if waiting else None

    def backend(self, backend: ResolvedBackend) -> dict[str, Any]:
        health = self._balancer.health[backend.name]
        return {
            "name": backend.name,
            "address": shown(backend.identity),
            "state": health.state.value,
            "since_s": self._age(health.since),
            "why": health.why,
            "checks": {
                check: {
                    "target": target.id if (target := backend.checks.get(check)) else None,
                    "verdict": count.verdict.value,
                    "against": count.against,
                    "pace": count.interval.value,
                    "error": self._balancer.probe_errors.get(backend.name, {}).get(check),
                }
                for check, count in health.counts.items()
            },
            "frontends": list(self._balancer.services.users[backend.name]),
            "intents": [_shown(one) for one in self._balancer.intents if self._is_about(one, backend)],
        }

    def _is_about(self, intent: Intent, backend: ResolvedBackend) -> bool:
        frontend, name = intent.scope.pair
        if intent.scope.target is not ScopeKind.POOL:
            return name == backend.configured
        found = self._balancer.services.frontends.get(frontend)
        index = None if found is None else found.pool_index(name)
        return found is not None and index is not None and backend.name in dict(found.pools[index])

    def explain_backend(self, backend: ResolvedBackend, shares: Shares = NO_SHARES) -> dict[str, Any]:
        """A backend with its transitions, and its entry under every VIP with the outstanding change."""
        transitions = self._balancer.history.get(backend.name, ())
        users = [self._balancer.services.frontends[name] for name in self._balancer.services.users[backend.name]]
        entries = [self._entry(frontend, backend, shares) for frontend in users]
        return {
            **self.backend(backend),
            "transitions": [self._transition(one) for one in transitions],
            "entries": entries,
        }

    def explain_frontend(self, frontend: ResolvedFrontend, shares: Shares = NO_SHARES) -> dict[str, Any]:
        found, keys = self.frontend(frontend), self._balancer.desired(frontend, self._now).keys
        for pool in found["pools"]:
            for member in pool:
                member |= _share(shares.get(keys[member["backend"]]))
        state = self._balancer.frontend_state(frontend.vip)
        unknown = state.unknown if state else ()
        outstanding = [one for one in self._reconciler.loop.outstanding() if one.key.startswith(str(frontend.vip))]
        return {
            **found,
            "released": frontend.name in self._balancer.warm.released,
            "unknown": [shown(one) for one in sorted(unknown)],
            "outstanding": msgspec.to_builtins(outstanding),
            "intents": [
                _shown(one)
                for one in self._balancer.intents
                if one.scope.pair[0] == frontend.name and one.weight is not None
            ],
        }

    async def plan(self) -> dict[str, Any]:
        """Outstanding changes, the gates that hold them, and the share of new flows that they would move."""
        loop = self._reconciler.loop
        changes = [one.change for one in loop.ledger]
        moved = await self._reconciler.target.predicted(changes)
        return {
            "total": len(loop.ledger),
            "gates": loop.held(),
            "objects": msgspec.to_builtins(loop.outstanding()),
            "moves": [
                {"vip": str(one.vip), "buckets": one.churn.moved, "of": one.churn.buckets, "share": one.churn.share}
                for one in moved
            ],
        }

    def _member(
        self, frontend: ResolvedFrontend, name: str, configured: int, desired: DesiredFrontend
    ) -> dict[str, Any]:
        backend, key = self._balancer.services.backends[name], desired.keys[name]
        entry = self._reconciler.target.held.get(key)
        wanted = desired.by_key[key]
        return {
            "backend": name,
            "address": shown(backend.identity),
            "state": self._balancer.health[name].state.value,
            "configured": configured,
            "asked": self._balancer.asked_weight(frontend, backend),
            "wanted": wanted.weight if isinstance(wanted, BackendEntry) else None,
            "programmed": entry.weight if isinstance(entry, BackendEntry) else None,
        }

    def _entry(self, frontend: ResolvedFrontend, backend: ResolvedBackend, shares: Shares) -> dict[str, Any]:
        desired = self._balancer.desired(frontend, self._now)
        key, share = desired.keys[backend.name], desired.serving.shares[backend.name]
        held, wanted = self._reconciler.target.held.get(key), desired.by_key[key]
        return {
            "frontend": frontend.name,
            "vip": str(frontend.vip),
            "wanted": wanted.weight if isinstance(wanted, BackendEntry) else None,
            "kill": share.kill,
            "programmed": held.weight if isinstance(held, BackendEntry) else None,
            "outstanding": msgspec.to_builtins(self._reconciler.loop.outstanding_for(key)),
            **_share(shares.get(key)),
        }

    def _transition(self, one: HealthTransition) -> dict[str, Any]:
        return {"ago_s": self._age(one.at), "old": one.old.value, "new": one.new.value, "why": one.why}

    def _age(self, since: Instant | None) -> float | None:
        return None if since is None else round(max(0.0, (self._now - since).total_seconds()), 3)


def _share(share: tuple[int, int] | None) -> dict[str, Any]:
    return {} if share is None else {"buckets": share[0], "of": share[1]}


def _shown(intent: Intent) -> dict[str, Any]:
    frontend, name = intent.scope.pair
    return {
        "what": intent.what.value,
        "frontend": frontend or None,
        "pool": name if intent.scope.target is ScopeKind.POOL else None,
        "backend": None if intent.scope.target is ScopeKind.POOL else name,
        "weight": intent.weight,
        "who": intent.who,
        "why": intent.why,
        "until": _text(intent.until),
    }


def _text(moment: object) -> str | None:
    return None if moment is None else str(moment)
