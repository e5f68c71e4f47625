"""Election: who leads, decided without IO. Everything that affects transitions is in this file.

One key under a lease names the leader; whoever creates it leads, and its create-revision is the term. A server follows
until the key is gone, then tries to create it. A leader proves its term again and again, and stops by itself when it
could not prove it in time.

Promises: leadership is counted from before the request was sent, on the boot clock (C9, C10); it is believed only as
long as the last *proven* renewal allows (C1, C11); a predecessor's key is cleared before its lease runs out only if
that process certainly died on this very machine (C12). The fence in the store makes what is left harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from holdfast.config.server import Server as Timings
from holdfast.model.leader import Leader
from holdfast.model.time import NEVER, Duration, Instant

_REST_FIRST = Duration(seconds=60)
_REST_MOST = Duration(seconds=600)
_LOOKS_PER_TTL = 3


class Phase(Enum):
    FOLLOWING = "following"
    CAMPAIGNING = "campaigning"
    LEADING = "leading"
    RESIGNING = "resigning"
    RESTING = "resting"
    STOPPED = "stopped"


class Lost(Enum):
    """Why a leadership ended. The value goes into the log, the history and the metrics."""

    NOT_RENEWED = "it could not prove its term in time"
    TERM_OVER = "the store says that its term is over"
    STEPPED_DOWN = "an operator asked it to step down"
    GAVE_WAY = "it could not do a leader's work, and another server can"
    PAUSED = "an operator paused it"
    STOPPED = "it was stopped"
    DUPLICATE = "another server has the same name"
    FOREIGN = "the store belongs to another fleet"


@dataclass(frozen=True, slots=True)
class Seen:
    """The leader key as the store had it. `term` 0: there is none."""

    term: int = 0
    mod_revision: int = 0
    lease: int = 0
    leader: Leader | None = None
    """None also when the value cannot be read: then nobody can be proven dead, and the lease decides."""


@dataclass(frozen=True, slots=True)
class Election:
    """What one server knows. Frozen: a step makes a new one."""

    phase: Phase = Phase.FOLLOWING
    seen: Seen | None = None
    looked: Instant = NEVER
    looking: bool = False
    term: int = 0
    lease: int = 0
    leased: Instant = NEVER
    """From when `lease` counts: before its grant, or its last renewal, was sent."""
    proven: Instant = NEVER
    """When the last renewal that the store has proven was sent."""
    tried: Instant = NEVER
    """When the last renewal, proven or not, was sent."""
    renewing: bool = False
    lost: Lost | None = None
    rest_until: Instant | None = None
    """While resting: until when not to campaign; None: until told to go on."""
    rests: int = 0


# Events: what happened.


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed. `dead`: the seen leader was a process of this machine, and it certainly is no more."""

    now: Instant
    dead: bool = False


@dataclass(frozen=True, slots=True)
class Looked:
    now: Instant
    seen: Seen


@dataclass(frozen=True, slots=True)
class LookFailed:
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
    """Somebody else created the key first."""

    now: Instant
    seen: Seen


@dataclass(frozen=True, slots=True)
class CampaignFailed:
    """No answer: the key may have been created or not. The next look tells."""

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
    """The key is given back, or could not be: then its lease runs out."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Leave:
    """Give up leadership and the wish for it: for a time (`rest`), until told to go on, or for good (STOPPED)."""

    now: Instant
    why: Lost
    rest: Duration | None = None


@dataclass(frozen=True, slots=True)
class GoOn:
    now: Instant


Event = (
    Tick | Looked | LookFailed | Leased | Won | Beaten | CampaignFailed
    | Renewed | RenewFailed | TermOver | Resigned | Leave | GoOn
)  # fmt: skip


# Effects: what is to be done.


class Look(Enum):
    NOW = "look at the leader key"


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
    """Give the key back at once, if it is still ours."""

    term: int
    lease: int
    why: Lost


@dataclass(frozen=True, slots=True)
class Tell:
    """Leadership began (`lost` None) or ended."""

    term: int
    lost: Lost | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """Write the new reign into the history."""

    term: int


Effect = Look | Campaign | Renew | Clear | Resign | Tell | Record
Step = tuple[Election, Sequence[Effect]]


def leading_until(state: Election, timings: Timings) -> Instant:
    """Until when this server may believe that it leads."""
    return state.proven + timings.renew_deadline if state.phase is Phase.LEADING else NEVER


def work_until(state: Election, timings: Timings) -> Instant:
    """When the lease may have run out: by then all leader work must have stopped."""
    return state.proven + timings.ttl if state.term else NEVER


def counted_from(sent: Instant, answered: Instant) -> Instant:
    """C10: a lease counts from before the request was sent; the store may have granted it at any time since."""
    return sent


def step(state: Election, event: Event, timings: Timings) -> Step:
    """An event that a phase does not know raises: it would be a bug of ours."""
    return TRANSITIONS[state.phase, type(event)](state, event, timings)


# Following


def _follow(state: Election, event: Tick, timings: Timings) -> Step:
    if event.dead and state.seen is not None and state.seen.term and not state.looking:
        return replace(state, looking=True), (Clear(state.seen.term, state.seen.mod_revision),)
    due = not state.looked or event.now - state.looked >= timings.ttl / _LOOKS_PER_TTL
    if state.looking or not due:
        return state, ()
    return replace(state, looking=True), (Look.NOW,)


def _looked(state: Election, event: Looked, timings: Timings) -> Step:
    seen = event.seen
    state = replace(state, seen=seen, looked=event.now, looking=False)
    if seen.term and seen.lease and seen.lease == state.lease:
        # Our own campaign, whose answer was lost. It counts from when its lease was asked for.
        return _lead(state, seen.term, event.now, timings)
    if seen.term:
        return state, ()
    return replace(state, phase=Phase.CAMPAIGNING), (Campaign(),)


def _look_failed(state: Election, event: LookFailed, timings: Timings) -> Step:
    return replace(state, looking=False), ()


# Campaigning


def _leased(state: Election, event: Leased, timings: Timings) -> Step:
    return replace(state, lease=event.lease, leased=counted_from(event.sent, event.now)), ()


def _won(state: Election, event: Won, timings: Timings) -> Step:
    return _lead(replace(state, looked=event.now), event.term, event.now, timings)


def _lead(state: Election, term: int, now: Instant, timings: Timings) -> Step:
    if now - state.leased >= timings.renew_deadline:
        # The answer came too late to build upon; the key is given back.
        state = replace(state, phase=Phase.RESIGNING, term=term, proven=state.leased)
        return state, (Resign(term, state.lease, Lost.NOT_RENEWED),)
    state = replace(
        state, phase=Phase.LEADING, term=term, proven=state.leased, tried=state.leased, renewing=False, lost=None
    )
    return state, (Tell(term), Record(term))


def _beaten(state: Election, event: Beaten, timings: Timings) -> Step:
    return replace(state, phase=Phase.FOLLOWING, seen=event.seen, looked=event.now, lease=0), ()


def _campaign_failed(state: Election, event: CampaignFailed, timings: Timings) -> Step:
    """The lease is remembered: if the key was created after all, the next look recognises it as ours."""
    return replace(state, phase=Phase.FOLLOWING, looked=NEVER), ()


# Leading


def _keep_leading(state: Election, event: Tick, timings: Timings) -> Step:
    if event.now >= leading_until(state, timings):
        return _lose(state, Lost.NOT_RENEWED)
    if state.renewing or event.now - state.tried < timings.renew_every:
        return state, ()
    return replace(state, renewing=True, tried=event.now), (Renew(state.term, state.lease),)


def _renewed(state: Election, event: Renewed, timings: Timings) -> Step:
    if event.term != state.term:
        return state, ()
    state = replace(
        state, renewing=False, proven=max(state.proven, counted_from(event.sent, event.now)), looked=event.now
    )
    if event.now >= leading_until(state, timings):
        return _lose(state, Lost.NOT_RENEWED)
    return state, ()


def _renew_failed(state: Election, event: RenewFailed, timings: Timings) -> Step:
    return replace(state, renewing=False), ()


def _term_over(state: Election, event: TermOver, timings: Timings) -> Step:
    if event.term != state.term:
        return state, ()
    state = replace(state, phase=Phase.FOLLOWING, lost=Lost.TERM_OVER, lease=0, looked=NEVER, looking=False, term=0)
    return state, (Tell(event.term, Lost.TERM_OVER),)


def _lose(state: Election, why: Lost) -> Step:
    """Leadership ends here and now; giving the key back is a courtesy to whoever comes next."""
    after = replace(state, phase=Phase.RESIGNING, lost=why)
    return after, (Tell(state.term, why), Resign(state.term, state.lease, why))


def _leave_leading(state: Election, event: Leave, timings: Timings) -> Step:
    after, effects = _lose(_rest(state, event), event.why)
    return after, effects


# Resigning, resting


def _resigned(state: Election, event: Resigned, timings: Timings) -> Step:
    state = replace(state, term=0, lease=0, looked=NEVER, looking=False, renewing=False)
    if state.lost is Lost.STOPPED:
        return replace(state, phase=Phase.STOPPED), ()
    resting = state.lost in (Lost.STEPPED_DOWN, Lost.GAVE_WAY, Lost.PAUSED, Lost.DUPLICATE, Lost.FOREIGN)
    return replace(state, phase=Phase.RESTING if resting else Phase.FOLLOWING), ()


def _rest(state: Election, event: Leave) -> Election:
    rests = state.rests + 1 if event.why is Lost.GAVE_WAY else state.rests
    rest = event.rest
    if event.why is Lost.GAVE_WAY:
        rest = min(_REST_MOST, _REST_FIRST * (1 << min(rests - 1, 10)))
    until = None if rest is None else event.now + rest
    return replace(state, lost=event.why, rests=rests, rest_until=until)


def _leave(state: Election, event: Leave, timings: Timings) -> Step:
    """Not leading, so there is nothing to give back; a campaign under way is recognised as ours when it is answered."""
    state = _rest(state, event)
    stopped = event.why is Lost.STOPPED
    return replace(state, phase=Phase.STOPPED if stopped else Phase.RESTING), ()


def _rest_on(state: Election, event: Tick, timings: Timings) -> Step:
    if state.rest_until is not None and event.now >= state.rest_until:
        return replace(state, phase=Phase.FOLLOWING, looked=NEVER, looking=False), ()
    # A resting server still looks, so that its status tells who leads.
    if state.looking or event.now - state.looked < timings.ttl / _LOOKS_PER_TTL:
        return state, ()
    return replace(state, looking=True), (Look.NOW,)


def _looked_resting(state: Election, event: Looked, timings: Timings) -> Step:
    state = replace(state, seen=event.seen, looked=event.now, looking=False)
    if event.seen.term and event.seen.lease and event.seen.lease == state.lease:
        return state, (Resign(event.seen.term, state.lease, state.lost or Lost.PAUSED),)
    return state, ()


def _won_unwanted(state: Election, event: Won, timings: Timings) -> Step:
    """The answer to a campaign that was given up meanwhile: what it won is given back."""
    return state, (Resign(event.term, state.lease, state.lost or Lost.STOPPED),)


def _go_on(state: Election, event: GoOn, timings: Timings) -> Step:
    return replace(state, phase=Phase.FOLLOWING, lost=None, rest_until=None, looked=NEVER, looking=False), ()


def _ignore(state: Election, event: Event, timings: Timings) -> Step:
    """Late news of something that does not matter any more."""
    return state, ()


def _note(state: Election, event: Looked, timings: Timings) -> Step:
    return replace(state, seen=event.seen, looked=event.now, looking=False), ()


def _leading_looked(state: Election, event: Looked, timings: Timings) -> Step:
    """The store was asked although we lead: a worker found us deposed, or the key was seen to change."""
    state = replace(state, seen=event.seen, looking=False)
    if event.seen.term != state.term:
        return _term_over(state, TermOver(event.now, state.term), timings)
    return state, ()


_P = Phase
TRANSITIONS: Mapping[tuple[Phase, type], Callable[..., Step]] = {
    (_P.FOLLOWING, Tick): _follow,
    (_P.FOLLOWING, Looked): _looked,
    (_P.FOLLOWING, LookFailed): _look_failed,
    (_P.FOLLOWING, Leave): _leave,
    (_P.FOLLOWING, GoOn): _ignore,
    (_P.FOLLOWING, Leased): _leased,
    (_P.FOLLOWING, Won): _won,
    (_P.FOLLOWING, Beaten): _beaten,
    (_P.FOLLOWING, CampaignFailed): _ignore,
    (_P.FOLLOWING, RenewFailed): _ignore,
    (_P.FOLLOWING, Renewed): _ignore,
    (_P.FOLLOWING, TermOver): _ignore,
    (_P.FOLLOWING, Resigned): _ignore,
    (_P.CAMPAIGNING, Tick): _ignore,
    (_P.CAMPAIGNING, Looked): _note,
    (_P.CAMPAIGNING, LookFailed): _look_failed,
    (_P.CAMPAIGNING, Leased): _leased,
    (_P.CAMPAIGNING, Won): _won,
    (_P.CAMPAIGNING, Beaten): _beaten,
    (_P.CAMPAIGNING, CampaignFailed): _campaign_failed,
    (_P.CAMPAIGNING, Renewed): _ignore,
    (_P.CAMPAIGNING, RenewFailed): _ignore,
    (_P.CAMPAIGNING, TermOver): _ignore,
    (_P.CAMPAIGNING, Leave): _leave,
    (_P.CAMPAIGNING, GoOn): _ignore,
    (_P.CAMPAIGNING, Resigned): _ignore,
    (_P.LEADING, Tick): _keep_leading,
    (_P.LEADING, Looked): _leading_looked,
    (_P.LEADING, LookFailed): _look_failed,
    (_P.LEADING, Renewed): _renewed,
    (_P.LEADING, RenewFailed): _renew_failed,
    (_P.LEADING, TermOver): _term_over,
    (_P.LEADING, Leave): _leave_leading,
    (_P.LEADING, GoOn): _ignore,
    (_P.LEADING, Won): _ignore,
    (_P.LEADING, Beaten): _ignore,
    (_P.LEADING, CampaignFailed): _ignore,
    (_P.LEADING, Resigned): _ignore,
    (_P.RESIGNING, Tick): _ignore,
    (_P.RESIGNING, Looked): _note,
    (_P.RESIGNING, LookFailed): _look_failed,
    (_P.RESIGNING, Renewed): _ignore,
    (_P.RESIGNING, RenewFailed): _ignore,
    (_P.RESIGNING, TermOver): _ignore,
    (_P.RESIGNING, Resigned): _resigned,
    (_P.RESIGNING, Leave): lambda state, event, _timings: (_rest(state, event), ()),
    (_P.RESIGNING, GoOn): lambda state, _event, _timings: (replace(state, lost=None), ()),
    (_P.RESTING, Tick): _rest_on,
    (_P.RESTING, Looked): _looked_resting,
    (_P.RESTING, LookFailed): _look_failed,
    (_P.RESTING, Leased): _leased,
    (_P.RESTING, Won): _won_unwanted,
    (_P.RESTING, Beaten): _ignore,
    (_P.RESTING, CampaignFailed): _ignore,
    (_P.RESTING, Renewed): _ignore,
    (_P.RESTING, RenewFailed): _ignore,
    (_P.RESTING, TermOver): _ignore,
    (_P.RESTING, Resigned): _ignore,
    (_P.RESTING, Leave): _leave,
    (_P.RESTING, GoOn): _go_on,
    (_P.STOPPED, Tick): _ignore,
    (_P.STOPPED, Looked): _ignore,
    (_P.STOPPED, LookFailed): _ignore,
    (_P.STOPPED, Leased): _leased,
    (_P.STOPPED, Won): _won_unwanted,
    (_P.STOPPED, Beaten): _ignore,
    (_P.STOPPED, CampaignFailed): _ignore,
    (_P.STOPPED, Renewed): _ignore,
    (_P.STOPPED, RenewFailed): _ignore,
    (_P.STOPPED, TermOver): _ignore,
    (_P.STOPPED, Resigned): _ignore,
    (_P.STOPPED, Leave): _ignore,
    (_P.STOPPED, GoOn): _ignore,
}
