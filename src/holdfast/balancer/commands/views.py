"""What people see of the balancer: every frontend with its pools, every backend with its story. Read-only."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.balancer.announce.vip_gate import host_of
from holdfast.balancer.desired.state import HealthTransition
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedBackend, ResolvedFrontend
from holdfast.balancer.target import predicted
from holdfast.balancer.vip import BackendEntry, VipKey, shown
from holdfast.model.base.time import Instant


class BalancerViews:
    """Answers questions about a keeper; `now` is when the question was asked."""

    def __init__(self, keeper: VipReconciler, now: Instant) -> None:
        self._keeper = keeper
        self._balancer = keeper.balancer
        self._now = now

    def status(self) -> dict[str, Any]:
        """Everything, as `holdfast balancer status` and the API show it."""
        roster, warm = self._balancer.roster, self._balancer.warm
        return {
            "warm_up": warm.phase(self._now).value,
            "prober_silent_s": self._age(self._keeper.health.silent),
            "dataplane": self._keeper.dataplane.describe().name,
            "digests": msgspec.to_builtins(self._keeper.digests()),
            "frontends": [self.frontend(one) for one in roster.frontends.values()],
            "backends": [self.backend(one) for one in roster.backends.values()],
            "missing": dict(roster.missing),
        }

    def frontend(self, frontend: ResolvedFrontend) -> dict[str, Any]:
        wanted = self._balancer.desired(frontend, self._now)
        serving = wanted.serving
        held = self._keeper.target.held
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
            "programmed": VipKey(frontend.vip) in held,
            "pools": [
                [self._member(frontend, name, weight, serving.shares[name].weight) for name, weight in pool]
                for pool in frontend.pools
            ],
        }

    def _announce(self, frontend: ResolvedFrontend) -> dict[str, Any] | None:
        """Where it is announced, and by the announcer's word what stands in the way."""
        if frontend.config.announce is None:
            return None
        farewell, host = self._keeper.farewell, host_of(frontend.vip)
        why = farewell.obstacles.get(host)
        return {"device": frontend.config.announce.device, "is_there": host in farewell.announced, "why": why}

    def backend(self, backend: ResolvedBackend) -> dict[str, Any]:
        health = self._balancer.health[backend.name]
        return {
            "name": backend.name,
            "address": shown(backend.identity),
            "state": health.state.value,
            "since_s": self._age(health.since),
            "why": health.why,
            "checks": {
                check: {"verdict": count.verdict.value, "against": count.against, "pace": count.pace.value}
                for check, count in health.counts.items()
            },
            "frontends": list(self._balancer.roster.users[backend.name]),
            "intents": [
                {
                    "what": one.what.value,
                    "weight": one.weight,
                    "who": one.who,
                    "why": one.why,
                    "until": _text(one.until),
                }
                for one in self._balancer.intents
                if one.scope.name == backend.name
            ],
        }

    def explain_backend(self, backend: ResolvedBackend) -> dict[str, Any]:
        """A backend with its transitions, its place under every VIP, and what stands in the way there."""
        transitions = self._balancer.history.get(backend.name, ())
        users = [self._balancer.roster.frontends[name] for name in self._balancer.roster.users[backend.name]]
        entries = [self._entry(frontend, backend) for frontend in users]
        return {
            **self.backend(backend),
            "transitions": [self._transition(one) for one in transitions],
            "entries": entries,
        }

    def explain_frontend(self, frontend: ResolvedFrontend) -> dict[str, Any]:
        standing = self._balancer.standing(frontend.vip)
        unknown = standing.unknown if standing else ()
        waiting = [one for one in self._keeper.reconciler.outstanding() if one.key.startswith(str(frontend.vip))]
        return {
            **self.frontend(frontend),
            "released": frontend.name in self._balancer.warm.released,
            "unknown": [shown(one) for one in sorted(unknown)],
            "outstanding": msgspec.to_builtins(waiting),
        }

    def plan(self) -> dict[str, Any]:
        """What is not as wanted, what stands in the way, and how much of the new flows it would move."""
        reconciler, size = self._keeper.reconciler, self._keeper.dataplane.describe().table_size
        changes = [story.change for story in reconciler.ledger]
        moved = predicted(self._keeper.target.held, changes, size)
        return {
            "total": len(reconciler.ledger),
            "gates": reconciler.held(),
            "objects": msgspec.to_builtins(reconciler.outstanding()),
            "moves": [
                {"vip": str(one.vip), "buckets": one.churn.moved, "of": one.churn.buckets, "share": one.churn.share}
                for one in moved
            ],
        }

    def _member(self, frontend: ResolvedFrontend, name: str, configured: int, wanted: int) -> dict[str, Any]:
        backend = self._balancer.roster.backends[name]
        entry = self._keeper.target.held.get(VipKey(frontend.vip, backend.identity))
        return {
            "backend": name,
            "address": shown(backend.identity),
            "state": self._balancer.health[name].state.value,
            "configured": configured,
            "wanted": wanted,
            "programmed": entry.weight if isinstance(entry, BackendEntry) else None,
        }

    def _entry(self, frontend: ResolvedFrontend, backend: ResolvedBackend) -> dict[str, Any]:
        key = VipKey(frontend.vip, backend.identity)
        held = self._keeper.target.held.get(key)
        share = self._balancer.desired(frontend, self._now).serving.shares[backend.name]
        return {
            "frontend": frontend.name,
            "vip": str(frontend.vip),
            "wanted": share.weight,
            "kill": share.kill,
            "programmed": held.weight if isinstance(held, BackendEntry) else None,
            "outstanding": msgspec.to_builtins(self._keeper.reconciler.outstanding_for(key)),
        }

    def _transition(self, one: HealthTransition) -> dict[str, Any]:
        return {"ago_s": self._age(one.at), "old": one.old.value, "new": one.new.value, "why": one.why}

    def _age(self, since: Instant | None) -> float | None:
        return None if since is None else round(max(0.0, (self._now - since).total_seconds()), 3)


def _text(moment: object) -> str | None:
    return None if moment is None else str(moment)
