"""The announcer's own gate. It fails static: warm-up, unknown health, a silent prober and a pause leave an address as
it is, and so does the end of any process. With `withdraw-after`, health that could not be verified for that long lets
the address go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.balancer.announce.policy import AnnouncedAddress, AnnouncePolicy, FrontendStatus
from holdfast.balancer.gates import HealthReason
from holdfast.balancer.health import HealthState
from holdfast.balancer.warm_up import WarmUpReason
from holdfast.model.base.time import Duration, Instant
from holdfast.reconcile import Change, Closed, Op, Reason
from holdfast.reconcile.pause import PauseReason

VIP_GATE = "vip_programmed"


class AnnounceReason(Reason):
    NOT_PROGRAMMED = "the dataplane does not hold its VIP yet"
    DELAY = "it has not been down for its withdraw-delay yet"
    STILL_SERVED = "its frontend is gone, but its VIP is held in the dataplane"


@dataclass(frozen=True, slots=True)
class AnnounceGate:
    """Holds changes of an address that the last input does not allow yet."""

    policy: AnnouncePolicy

    def judge(
        self, change: Change[AnnouncedAddress, None], tally: Mapping[Op, int], have: int, now: Instant
    ) -> Closed | None:
        statuses = self.policy.statuses(change.key)
        if change.op is not Op.DELETE:
            verdicts = [self._not_announced_yet(status) for status in statuses if self.policy.is_up(status, now)]
            return None if None in verdicts else next(iter(verdicts), None)
        if not statuses:
            return self._unclaimed(change.key, now)
        return next(
            (closed for status in statuses if (closed := self._not_withdrawn_yet(status, now)) is not None), None
        )

    def _not_announced_yet(self, status: FrontendStatus) -> Closed | None:
        """Reason not to announce the address of this frontend, which is up."""
        closed = self._unchanged(status)
        if closed is None and not status.programmed:
            since = self.policy.input.started
            closed = Closed(VIP_GATE, AnnounceReason.NOT_PROGRAMMED, since, "the VIP in the dataplane", status.frontend)
        return closed

    def _not_withdrawn_yet(self, status: FrontendStatus, now: Instant) -> Closed | None:
        """Reason not to withdraw the address of this frontend, which is not up, or not known to be."""
        if status.is_unverified(now):
            return self._paused(status)
        if status.state is HealthState.UNKNOWN:
            opens = f"a first result of a backend of {status.frontend}"
            return Closed("no_health", HealthReason.NO_HEALTH, self.policy.input.started, opens, status.frontend)
        down_since = self.policy.down_since(status.frontend, now)
        return self._unchanged(status) or _delayed(status.frontend, down_since, status.delay, now)

    def _unchanged(self, status: FrontendStatus) -> Closed | None:
        """Reason to leave the address as it is, whether the frontend is up or down."""
        started = self.policy.input.started
        if (paused := self._paused(status)) is not None:
            return paused
        if not status.released:
            opens = "a first result for each of its backends, or the end of the start-up window"
            return Closed("warm_up", WarmUpReason.BACKEND_UNKNOWN, started, opens, status.frontend)
        if self.policy.input.prober_silent_since is not None and not status.by_operator:
            return Closed(
                "no_prober", HealthReason.NO_PROBER, self.policy.input.prober_silent_since, "the prober's next report"
            )
        return None

    def _paused(self, status: FrontendStatus) -> Closed | None:
        if status.paused is None:
            return None
        opens = f"holdfast resume frontend {status.frontend}"
        return Closed("intent", PauseReason.PAUSED, self.policy.input.started, opens, status.paused)

    def _unclaimed(self, address: AnnouncedAddress, now: Instant) -> Closed | None:
        """Reason to keep an announced address that no frontend has any more."""
        if self.policy.input.warming:
            opens = "the end of the start-up window"
            return Closed("warm_up", WarmUpReason.FULL_SYNC, self.policy.input.started, opens)
        if address.host in self.policy.input.kept_vips:
            return Closed(
                VIP_GATE,
                AnnounceReason.STILL_SERVED,
                self.policy.input.started,
                "the release of its VIP: holdfast balancer plan shows the gate",
            )
        since, delay = self.policy.gone(address)
        return _delayed("its frontend is gone", since, delay, now)


def _delayed(detail: str, since: Instant, delay: Duration, now: Instant) -> Closed | None:
    if now - since >= delay:
        return None
    opens = f"the end of the withdraw-delay of {delay.total_seconds():g} s"
    return Closed("withdraw_delay", AnnounceReason.DELAY, since, opens, detail)
