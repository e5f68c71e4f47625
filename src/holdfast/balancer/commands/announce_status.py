"""The outlook: what the keeper of the VIPs knows, as the announcer needs it. Read-only."""

from __future__ import annotations

from holdfast.balancer.announce.policy import AnnounceInput, FrontendStatus
from holdfast.balancer.announce.vip_gate import GATE, host_of
from holdfast.balancer.health import HealthState
from holdfast.balancer.reconciler import VipReconciler
from holdfast.balancer.services.resolved import ResolvedFrontend
from holdfast.balancer.vip import VipKey, VipSettings
from holdfast.balancer.warm_up import WarmUpPhase
from holdfast.config.sections.frontend import Announce
from holdfast.model.base.time import Instant


def outlook(keeper: VipReconciler, now: Instant) -> AnnounceInput:
    balancer, synced = keeper.balancer, keeper.sync.sources.get(keeper.source.name)
    frontends = balancer.roster.frontends.values()
    return AnnounceInput(
        started=balancer.warm.started,
        stands=tuple(
            _stand(keeper, one, one.config.announce, now) for one in frontends if one.config.announce is not None
        ),
        revision=None if synced is None else synced.revision,
        unreadable=() if synced is None else synced.unreadable,
        warming=balancer.warm.phase(now) is not WarmUpPhase.OVER,
        silent=keeper.health.silent,
        staying=_staying(keeper),
    )


def _stand(keeper: VipReconciler, frontend: ResolvedFrontend, announce: Announce, now: Instant) -> FrontendStatus:
    balancer = keeper.balancer
    standing, pause = balancer.standing(frontend.vip), balancer.pauses.get(frontend.name)
    held = keeper.target.held.get(VipKey(frontend.vip))
    is_known = standing is None or standing.known
    return FrontendStatus(
        frontend=frontend.name,
        address=host_of(frontend.vip),
        device=announce.device,
        delay=announce.withdraw_delay,
        state=balancer.desired(frontend, now).serving.state if is_known else HealthState.UNKNOWN,
        programmed=isinstance(held, VipSettings) and not held.damaged,
        released=balancer.warm.judge(frontend.name, now) is None,
        by_operator=standing is not None and len(standing.held) == len(list(frontend.backends())),
        paused=None if pause is None else f"{pause.who}: “{pause.why}”",
    )


def _staying(keeper: VipReconciler) -> tuple[str, ...]:
    """Addresses of VIPs that nobody wants, and that are not merely waiting for their address to go."""
    if not keeper.farewell.announced:
        return ()
    waiting = {
        story.change.key.vip
        for story in keeper.reconciler.ledger
        if story.closed is not None and story.closed.gate == GATE
    }
    at = keeper.balancer.roster.at
    unwanted = {key.vip for key in keeper.target.held if key.vip not in at}
    return tuple(sorted({host_of(vip) for vip in unwanted - waiting}))
