"""Election state machine: decides which server leads, without IO. Everything that affects transitions is in this file.

One key under a lease names the leader; the server that creates it leads, and its create-revision is the term. A server
follows until the key is gone, then tries to create it. A leader proves its term periodically, and stops by itself when
it could not prove it in time.

Promises: leadership is counted from before the request was sent, on the boot clock (C9, C10); it is trusted only until
the last *proven* renewal expires (C1, C11); a predecessor's key is cleared before its lease runs out only if that
process certainly exited on this machine (C12). The fence in the store makes the remaining races harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.control.leader import Leader

_REST_FIRST = Duration(seconds=60)
_REST_MOST = Duration(seconds=600)
_READS_PER_TTL = 3


class ElectionPhase(Enum):
    FOLLOWING = "following"
    CAMPAIGNING = "campaigning"
    LEADING = "leading"
    RESIGNING = "resigning"
    RESTING = "resting"
    STOPPED = "stopped"


class LossReason(Enum):
    """Reason for the end of a leadership. The value goes into the log and the history."""

    NOT_RENEWED = "it could not prove its term in time"
    TERM_OVER = "its term is over in the store"
    STEPPED_DOWN = "an operator asked it to step down"
    HANDED_OVER = "it could not do a leader's work, and another server can"
    PAUSED = "an operator paused it"
    STOPPED = "it was stopped"
    DUPLICATE = "another server has the same name"
    FOREIGN = "the store belongs to another fleet"


@dataclass(frozen=True, slots=True)
class SeenLeader:
    """The leader key as it was read from the store. `term` 0: there is none."""

    term: int = 0
    mod_revision: int = 0
    lease: int = 0
    leader: Leader | None = None
    """None also when the value is unreadable: then no process can be proven dead, and the lease decides."""
    reserved_for: str = ""
    """Name of another server, for which the last leader stepped down; no other campaigns meanwhile."""


@dataclass(frozen=True, slots=True)
class Election:
    """State of one server. Frozen: a step makes a new one."""

    phase: ElectionPhase = ElectionPhase.FOLLOWING
    seen: SeenLeader | None = None
    read_at: Instant = NEVER
    reading: bool = False
    term: int = 0
    lease: int = 0
    leased: Instant = NEVER
    """Instant from which `lease` counts: before its grant was sent."""
    proven: Instant = NEVER
    """Instant at which the last renewal that the store has proven was sent."""
    tried: Instant = NEVER
    """Instant at which the last renewal, proven or not, was sent."""
    renewing: bool = False
    campaigning: bool = False
    """A campaign is under way. It outlives the phase: a campaign that was given up is still answered."""
    began: Instant = NEVER
    """Beginning of the last leadership."""
    lost: LossReason | None = None
    """Reason for the end of the last leadership."""
    withheld: frozenset[LossReason] = frozenset()
    """Reasons not to campaign, each of which lasts until its `Rejoin`; STOPPED never ends."""
    rest_until: Instant = NEVER
    """End of the rest after leadership was given up for a time; no campaign before."""
    rests: int = 0
    """Handovers in a row without a long leadership in between."""
    successor: str = ""
    """Server for which the vacancy is reserved when leadership is given back."""
    resigning: bool = False
    """A resignation is under way."""
    resign_tried: Instant = NEVER


# Events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. `dead`: the leader was a process of this machine, and it certainly died. `over`: a worker asked the
    store and found our term to be over."""

    now: Instant
    dead: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True)
class LeaderRead:
    now: Instant
    seen: SeenLeader


@dataclass(frozen=True, slots=True)
class LeaderReadFailed:
    now: Instant


@dataclass(frozen=True, slots=True)
class Leased:
    """The store granted a lease for the campaign; the request was sent at `sent`."""

    now: Instant
    sent: Instant
    lease: int


@dataclass(frozen=True, slots=True)
class Won:
    now: Instant
    term: int


@dataclass(frozen=True, slots=True)
class Beaten:
    """Another server created the key first."""

    now: Instant
    seen: SeenLeader


@dataclass(frozen=True, slots=True)
class CampaignFailed:
    """No answer: the key may have been created or not. The next read shows which."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Renewed:
    """The store has proven the term by a transaction; the lease's renewal was sent at `sent`."""

    now: Instant
    sent: Instant
    term: int


@dataclass(frozen=True, slots=True)
class RenewFailed:
    now: Instant


@dataclass(frozen=True, slots=True)
class TermOver:
    now: Instant
    term: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """The key was given back, or was not ours any more."""

    now: Instant


@dataclass(frozen=True, slots=True)
class ResignFailed:
    """No answer: the key may still be there."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Leave:
    """Give up leadership and stop campaigning: for a time (`rest`, or the back-off after a handover), until `Rejoin`,
    or for good (STOPPED)."""

    now: Instant
    why: LossReason
    rest: Duration | None = None
    successor: str = ""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """`why` no longer holds. Other reasons not to campaign stay."""

    now: Instant
    why: LossReason


Event = (
    Tick | LeaderRead | LeaderReadFailed | Leased | Won | Beaten | CampaignFailed
    | Renewed | RenewFailed | TermOver | Resigned | ResignFailed | Leave | Rejoin
)  # fmt: skip


# Effects


class ReadLeader(Enum):
    NOW = "read the leader key"


@dataclass(frozen=True, slots=True)
class Campaign:
    """Grant a lease, then create the key if it is absent."""


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the lease, then prove the term by a transaction that compares it."""

    term: int
    lease: int


@dataclass(frozen=True, slots=True)
class Clear:
    """Delete the key of a predecessor that died here, if it is still exactly that key."""

    term: int
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Give the key back at once, if it is still ours, and reserve the vacancy for `successor` if there is one."""

    term: int
    lease: int
    why: LossReason
    successor: str = ""


@dataclass(frozen=True, slots=True)
class LeadershipChange:
    """Leadership began (`lost` None) or ended."""

    term: int
    lost: LossReason | None = None


@dataclass(frozen=True, slots=True)
class RecordHistory:
    """Write the new term into the history."""

    term: int


Effect = ReadLeader | Campaign | Renew | Clear | Resign | LeadershipChange | RecordHistory
Step = tuple[Election, Sequence[Effect]]


def leading_until(state: Election, timings: ServerSettings) -> Instant:
    """Deadline of this server's leadership."""
    return state.proven + timings.renew_deadline if state.phase is ElectionPhase.LEADING else NEVER


def work_until(state: Election, timings: ServerSettings) -> Instant:
    """Instant at which the lease may have run out: by then all leader work must have stopped."""
    return state.proven + timings.ttl if state.term else NEVER


def counted_from(sent: Instant, answered: Instant) -> Instant:  # protection: C10
    """C10: a lease counts from before the request was sent; the store may have granted it at any time after that."""
    return sent


def step(state: Election, event: Event, timings: ServerSettings) -> Step:
    """An event that a phase does not know raises `KeyError`: it would be a bug of ours."""
    return TRANSITIONS[state.phase, type(event)](state, event, timings)


# Following


def _follow(state: Election, event: Tick, timings: ServerSettings) -> Step:
    if event.dead and state.seen is not None and state.seen.term and not state.reading:
        return replace(state, reading=True), (Clear(state.seen.term, state.seen.mod_revision),)
    return _read_if_due(state, event.now, timings)


def _read_if_due(state: Election, now: Instant, timings: ServerSettings) -> Step:
    due = not state.read_at or now - state.read_at >= timings.ttl / _READS_PER_TTL
    if state.reading or not due:
        return state, ()
    return replace(state, reading=True), (ReadLeader.NOW,)


def _read_following(state: Election, event: LeaderRead, timings: ServerSettings) -> Step:
    state = _seen(state, event)
    if state.campaigning:
        return state, ()  # given up and resumed: the answer still to come is newer than this read
    if _is_ours(state, event.seen):
        # Our own campaign, whose answer was lost. It counts from when its lease was requested.
        return _lead(state, event.seen.term, event.now, timings)
    if event.seen.term:
        return state, ()
    if event.seen.reserved_for:
        return replace(state, read_at=NEVER), ()  # read again soon: the reservation is short
    return replace(state, phase=ElectionPhase.CAMPAIGNING, campaigning=True), (Campaign(),)


def _seen(state: Election, event: LeaderRead) -> Election:
    return replace(state, seen=event.seen, read_at=event.now, reading=False)


def _is_ours(state: Election, seen: SeenLeader) -> bool:
    return bool(seen.term and seen.lease and seen.lease == state.lease)


def _read_failed(state: Election, event: LeaderReadFailed, timings: ServerSettings) -> Step:
    return replace(state, reading=False), ()


# Campaigning


def _leased(state: Election, event: Leased, timings: ServerSettings) -> Step:
    return replace(state, lease=event.lease, leased=counted_from(event.sent, event.now)), ()


def _won(state: Election, event: Won, timings: ServerSettings) -> Step:
    return _lead(replace(state, read_at=event.now, campaigning=False), event.term, event.now, timings)


def _lead(state: Election, term: int, now: Instant, timings: ServerSettings) -> Step:
    if now >= state.leased + timings.renew_deadline:
        return _resign(state, term, LossReason.NOT_RENEWED)  # the answer came too late to rely on
    state = replace(
        state, phase=ElectionPhase.LEADING, term=term, proven=state.leased, tried=state.leased, began=now, lost=None
    )
    return state, (LeadershipChange(term), RecordHistory(term))


def _beaten(state: Election, event: Beaten, timings: ServerSettings) -> Step:
    state = replace(state, seen=event.seen, read_at=event.now, lease=0, campaigning=False)
    return replace(state, phase=ElectionPhase.FOLLOWING), ()


def _campaign_failed(state: Election, event: CampaignFailed, timings: ServerSettings) -> Step:
    """The lease is remembered: if the key was created after all, the next read recognises it as ours."""
    return replace(state, phase=ElectionPhase.FOLLOWING, read_at=NEVER, campaigning=False), ()


# Leading


def _keep_leading(state: Election, event: Tick, timings: ServerSettings) -> Step:
    if event.now >= leading_until(state, timings):
        return _lose(state, LossReason.NOT_RENEWED)
    if event.over:
        # No worker works under this term any more, so it is given back even if the key is still there.
        return _lose(state, LossReason.TERM_OVER)
    if state.renewing or event.now - state.tried < timings.renew_every:
        return state, ()
    return replace(state, renewing=True, tried=event.now), (Renew(state.term, state.lease),)


def _renewed(state: Election, event: Renewed, timings: ServerSettings) -> Step:
    if event.term != state.term:
        return state, ()
    proven = max(state.proven, counted_from(event.sent, event.now))
    state = replace(state, renewing=False, proven=proven, read_at=event.now)
    if event.now >= leading_until(state, timings):
        return _lose(state, LossReason.NOT_RENEWED)
    return state, ()


def _renew_failed(state: Election, event: RenewFailed, timings: ServerSettings) -> Step:
    return replace(state, renewing=False), ()


def _term_over(state: Election, event: TermOver, timings: ServerSettings) -> Step:
    if event.term != state.term:
        return state, ()
    return _follow_again(replace(state, lost=LossReason.TERM_OVER)), (
        LeadershipChange(event.term, LossReason.TERM_OVER),
    )


def _read_leading(state: Election, event: LeaderRead, timings: ServerSettings) -> Step:
    """A read that was requested before this server led, or because the key changed."""
    state = replace(state, seen=event.seen, reading=False)
    if event.seen.term != state.term:
        return _lose(state, LossReason.TERM_OVER)
    return state, ()


def _lose(state: Election, why: LossReason) -> Step:
    """Leadership ends here and now; giving the key back only lets the next leader begin sooner."""
    after, effects = _resign(state, state.term, why)
    return after, (LeadershipChange(state.term, why), *effects)


def _leave_leading(state: Election, event: Leave, timings: ServerSettings) -> Step:
    return _lose(replace(_rest(state, event), successor=event.successor), event.why)


# Resigning, resting


def _resign(state: Election, term: int, why: LossReason) -> Step:
    state = replace(state, phase=ElectionPhase.RESIGNING, term=term, lost=why, resigning=True)
    return state, (Resign(term, state.lease, why, state.successor),)


def _resign_failed(state: Election, event: ResignFailed, timings: ServerSettings) -> Step:
    return replace(state, resigning=False, resign_tried=event.now), ()


def _resign_again(state: Election, event: Tick, timings: ServerSettings) -> Step:
    """Retry until the lease is over: else followers would wait for all of it after one lost answer."""
    if event.now >= max(state.proven, state.leased) + timings.ttl and not state.resigning:
        return _resigned(state, Resigned(event.now), timings)
    if state.resigning or event.now - state.resign_tried < timings.renew_every / 2:
        return state, ()
    assert state.lost is not None
    return _resign(state, state.term, state.lost)


def _resigned(state: Election, event: Resigned, timings: ServerSettings) -> Step:
    return _settle(_follow_again(state), event.now), ()


def _follow_again(state: Election) -> Election:
    return replace(
        state,
        phase=ElectionPhase.FOLLOWING,
        term=0,
        lease=0,
        read_at=NEVER,
        reading=False,
        renewing=False,
        resigning=False,
        successor="",
    )


def _settle(state: Election, now: Instant) -> Election:
    """Phase of a server that does not lead: it follows, unless there is a reason not to campaign."""
    if LossReason.STOPPED in state.withheld:
        return replace(state, phase=ElectionPhase.STOPPED)
    if rests(state, now):
        return replace(state, phase=ElectionPhase.RESTING)
    return replace(state, phase=ElectionPhase.FOLLOWING)


def rests(state: Election, now: Instant) -> bool:
    """Return whether this server is no candidate. It is none from the decision to step down on, so that others know it
    when they take over, and not only once the key is given back."""
    return bool(state.withheld) or now < state.rest_until


def _rest(state: Election, event: Leave) -> Election:
    if event.why is LossReason.HANDED_OVER:
        led_well = state.began and event.now - state.began >= _REST_MOST
        rests = 1 if led_well else state.rests + 1
        until = event.now + min(_REST_MOST, _REST_FIRST * (1 << min(rests - 1, 10)))
        return replace(state, rests=rests, rest_until=max(until, state.rest_until))
    if event.rest is not None:
        return replace(state, rest_until=max(event.now + event.rest, state.rest_until))
    return replace(state, withheld=state.withheld | {event.why})


def _leave(state: Election, event: Leave, timings: ServerSettings) -> Step:
    """Not leading, so there is nothing to give back yet; what a campaign under way wins is given back later."""
    return _settle(_rest(state, event), event.now), ()


def _leave_resigning(state: Election, event: Leave, timings: ServerSettings) -> Step:
    return _rest(state, event), ()


def _rest_on(state: Election, event: Tick, timings: ServerSettings) -> Step:
    settled = _settle(state, event.now)
    if settled.phase is not ElectionPhase.RESTING:
        return replace(settled, read_at=NEVER), ()
    # A resting server still reads the key, so that its status shows who leads.
    return _read_if_due(state, event.now, timings)


def _read_resting(state: Election, event: LeaderRead, timings: ServerSettings) -> Step:
    state = _seen(state, event)
    if _is_ours(state, event.seen) and not state.campaigning:
        return _resign(state, event.seen.term, _why_unwanted(state))
    return state, ()


def _won_unwanted(state: Election, event: Won, timings: ServerSettings) -> Step:
    """Answer to a campaign that was given up meanwhile: what it won is given back."""
    return _resign(replace(state, campaigning=False), event.term, _why_unwanted(state))


def _why_unwanted(state: Election) -> LossReason:
    return min(state.withheld, key=lambda why: why.name, default=state.lost or LossReason.STEPPED_DOWN)


def _campaign_over(state: Election, event: Beaten | CampaignFailed, timings: ServerSettings) -> Step:
    """It was given up meanwhile. A key that it may have created is recognised by its lease at the next read."""
    return replace(state, campaigning=False, read_at=NEVER), ()


def _rejoin(state: Election, event: Rejoin, timings: ServerSettings) -> Step:
    """End that one reason; a timed rest runs to its end."""
    state = replace(state, withheld=state.withheld - ({event.why} - {LossReason.STOPPED}))
    if state.phase is not ElectionPhase.RESTING:
        return state, ()
    return replace(_settle(state, event.now), read_at=NEVER), ()


def _ignore(state: Election, event: Event, timings: ServerSettings) -> Step:
    """Late answer that no longer matters."""
    return state, ()


def _note(state: Election, event: LeaderRead, timings: ServerSettings) -> Step:
    return _seen(state, event), ()


# An event that is not in its phase's row cannot happen there: see tests/server/election/test_machine.py.
_P = ElectionPhase
TRANSITIONS: Mapping[tuple[ElectionPhase, type], Callable[..., Step]] = {
    (_P.FOLLOWING, Tick): _follow,
    (_P.FOLLOWING, LeaderRead): _read_following,
    (_P.FOLLOWING, LeaderReadFailed): _read_failed,
    (_P.FOLLOWING, Leased): _leased,
    (_P.FOLLOWING, Won): _won,
    (_P.FOLLOWING, Beaten): _beaten,
    (_P.FOLLOWING, CampaignFailed): _campaign_failed,
    (_P.FOLLOWING, Leave): _leave,
    (_P.FOLLOWING, Rejoin): _rejoin,
    (_P.CAMPAIGNING, Tick): _ignore,
    (_P.CAMPAIGNING, LeaderRead): _note,
    (_P.CAMPAIGNING, LeaderReadFailed): _read_failed,
    (_P.CAMPAIGNING, Leased): _leased,
    (_P.CAMPAIGNING, Won): _won,
    (_P.CAMPAIGNING, Beaten): _beaten,
    (_P.CAMPAIGNING, CampaignFailed): _campaign_failed,
    (_P.CAMPAIGNING, Leave): _leave,
    (_P.CAMPAIGNING, Rejoin): _rejoin,
    (_P.LEADING, Tick): _keep_leading,
    (_P.LEADING, LeaderRead): _read_leading,
    (_P.LEADING, LeaderReadFailed): _read_failed,
    (_P.LEADING, Renewed): _renewed,
    (_P.LEADING, RenewFailed): _renew_failed,
    (_P.LEADING, TermOver): _term_over,
    (_P.LEADING, Leave): _leave_leading,
    (_P.LEADING, Rejoin): _rejoin,
    (_P.RESIGNING, Tick): _resign_again,
    (_P.RESIGNING, LeaderRead): _note,
    (_P.RESIGNING, LeaderReadFailed): _read_failed,
    (_P.RESIGNING, Renewed): _ignore,
    (_P.RESIGNING, RenewFailed): _ignore,
    (_P.RESIGNING, TermOver): _ignore,
    (_P.RESIGNING, Resigned): _resigned,
    (_P.RESIGNING, ResignFailed): _resign_failed,
    (_P.RESIGNING, Leave): _leave_resigning,
    (_P.RESIGNING, Rejoin): _rejoin,
    (_P.RESTING, Tick): _rest_on,
    (_P.RESTING, LeaderRead): _read_resting,
    (_P.RESTING, LeaderReadFailed): _read_failed,
    (_P.RESTING, Leased): _leased,
    (_P.RESTING, Won): _won_unwanted,
    (_P.RESTING, Beaten): _campaign_over,
    (_P.RESTING, CampaignFailed): _campaign_over,
    (_P.RESTING, Leave): _leave,
    (_P.RESTING, Rejoin): _rejoin,
    (_P.STOPPED, Tick): _ignore,
    (_P.STOPPED, LeaderRead): _ignore,
    (_P.STOPPED, LeaderReadFailed): _ignore,
    (_P.STOPPED, Leased): _leased,
    (_P.STOPPED, Won): _won_unwanted,
    (_P.STOPPED, Beaten): _campaign_over,
    (_P.STOPPED, CampaignFailed): _campaign_over,
    (_P.STOPPED, Leave): _ignore,
    (_P.STOPPED, Rejoin): _ignore,
}
