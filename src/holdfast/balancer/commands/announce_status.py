"""State of the frontends for the announcer: builds its `AnnounceInput`. Read-only."""

from __future__ import annotations

from holdfast.balancer.announce.policy import AnnounceInput, FrontendStatus
from holdfast.balancer.gates import ANNOUNCED
from holdfast.balancer.health import HealthState
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.vip import VipKey, VipSettings
from holdfast.balancer.warm_up import WarmUpPhase
from holdfast.config.sections.frontend import Announce
from holdfast.model.base.time import Instant


def announce_input(reconciler: VipReconciler, now: Instant) -> AnnounceInput:
    balancer, synced = reconciler.balancer, reconciler.sync.sources.get(reconciler.source.name)
    frontends = balancer.services.frontends.values()
    announced = [(one, one.config.announce) for one in frontends if one.config.announce is not None]
    return AnnounceInput(
        started=balancer.warm.started,
        frontends=tuple(_status(reconciler, frontend, announce, now) for frontend, announce in announced),
        revision=None if synced is None else synced.revision,
        unreadable=() if synced is None else synced.unreadable,
        warming=balancer.warm.phase(now) is not WarmUpPhase.OVER,
        prober_silent_since=reconciler.health.silent_since,
        kept_vips=_kept_vips(reconciler),
    )


def _status(reconciler: VipReconciler, frontend: ResolvedFrontend, announce: Announce, now: Instant) -> FrontendStatus:
    balancer = reconciler.balancer
    state, pause = balancer.frontend_state(frontend.vip), balancer.pauses.get(frontend.name)
    held = reconciler.target.held.get(VipKey(frontend.vip))
    is_known = state is None or state.known
    by_operator = state is not None and len(state.held) == len(list(frontend.backends()))
    return FrontendStatus(
        frontend=frontend.name,
        address=frontend.vip.host,
        device=announce.device,
        delay=announce.withdraw_delay,
        state=balancer.desired(frontend, now).serving.state if is_known else HealthState.UNKNOWN,
        programmed=isinstance(held, VipSettings) and not held.damaged,
        released=balancer.warm.judge(frontend.name, now) is None,
        by_operator=by_operator,
        paused=None if pause is None else f"{pause.who}: “{pause.why}”",
        withdraw_after=frontend.config.withdraw_after,
        unverified_since=None if by_operator else unverified_since(reconciler, frontend),
    )


def unverified_since(reconciler: VipReconciler, frontend: ResolvedFrontend) -> Instant | None:
    """Since when the health of a frontend's backends cannot be verified; None while it can."""
    silent, balancer = reconciler.health.silent_since, reconciler.balancer
    state = balancer.frontend_state(frontend.vip)
    if silent is not None or state is None or state.known:
        return silent
    return max(balancer.health[name].since for name in frontend.backends())


def _kept_vips(reconciler: VipReconciler) -> tuple[str, ...]:
    """Addresses of unwanted VIPs that a gate other than `announced` holds."""
    if not reconciler.announced_gate.announced:
        return ()
    waiting = {
        one.change.key.vip for one in reconciler.loop.ledger if one.closed is not None and one.closed.gate == ANNOUNCED
    }
    at = reconciler.balancer.services.at
    unwanted = {key.vip for key in reconciler.target.held if key.vip not in at}
    return tuple(sorted({vip.host for vip in unwanted - waiting}))
