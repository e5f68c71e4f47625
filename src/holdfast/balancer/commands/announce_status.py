"""The outlook: what the keeper of the VIPs knows, as the announcer needs it. Read-only."""

from __future__ import annotations

from holdfast.balancer.announce.policy import Outlook, Stand
from holdfast.balancer.announce.vip_gate import GATE, host_of
from holdfast.balancer.health import State
from holdfast.balancer.reconciler import Keeper
from holdfast.balancer.services.resolved import Announcement, Frontend
from holdfast.balancer.vip import Key, Settings
from holdfast.balancer.warm_up import Phase
from holdfast.model.base.time import Instant


def outlook(keeper: Keeper, now: Instant) -> Outlook:
    balancer, synced = keeper.balancer, keeper.sync.sources.get(keeper.source.name)
    frontends = balancer.roster.frontends.values()
    return Outlook(
        started=balancer.warm.started,
        stands=tuple(_stand(keeper, one, one.announce, now) for one in frontends if one.announce is not None),
        revision=None if synced is None else synced.revision,
        unreadable=() if synced is None else synced.unreadable,
        warming=balancer.warm.phase(now) is not Phase.OVER,
        silent=keeper.health.silent,
        staying=_staying(keeper),
    )


def _stand(keeper: Keeper, frontend: Frontend, announce: Announcement, now: Instant) -> Stand:
    balancer = keeper.balancer
    standing, pause = balancer.standing(frontend.vip), balancer.pauses.get(frontend.name)
    held = keeper.target.held.get(Key(frontend.vip))
    is_known = standing is None or standing.known
    return Stand(
        frontend=frontend.name,
        address=host_of(frontend.vip),
        device=announce.device,
        delay=announce.withdraw_delay,
        state=balancer.desired(frontend, now).serving.state if is_known else State.UNKNOWN,
        programmed=isinstance(held, Settings) and not held.damaged,
        released=balancer.warm.judge(frontend.name, now) is None,
        by_operator=standing is not None and len(standing.held) == len(list(frontend.backends())),
        paused=None if pause is None else f"{pause.who}: “{pause.why}”",
    )


def _staying(keeper: Keeper) -> tuple[str, ...]:
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
