"""Election state machine: every phase handles what can happen in it, and the promises always hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.config.sections.server import ServerSettings
from holdfast.model.base.time import NEVER, Duration, Instant, seconds
from holdfast.model.control.leader import Leader
from holdfast.server.election import machine
from holdfast.server.election.machine import (
    TRANSITIONS,
    Beaten,
    Campaign,
    CampaignFailed,
    Clear,
    Effect,
    Election,
    ElectionPhase,
    Event,
    LeaderRead,
    LeaderReadFailed,
    LeadershipChange,
    Leased,
    Leave,
    LossReason,
    ReadLeader,
    RecordHistory,
    Rejoin,
    Renew,
    Renewed,
    RenewFailed,
    Resign,
    Resigned,
    ResignFailed,
    SeenLeader,
    TermOver,
    Tick,
    Won,
)

TIMINGS = ServerSettings()
START = Instant(1_000_000_000_000)
EVENTS = (
    Tick, LeaderRead, LeaderReadFailed, Leased, Won, Beaten, CampaignFailed, Renewed, RenewFailed, TermOver,
    Resigned, ResignFailed, Leave, Rejoin
)  # fmt: skip
OTHER = SeenLeader(5, 6, 99, Leader("other", "host", 1))

CANNOT_HAPPEN: dict[tuple[ElectionPhase, type], str] = {
    **{
        (phase, event): "a renewal is answered before anything that was decided after it, so still leading or resigning"
        for phase in (ElectionPhase.FOLLOWING, ElectionPhase.CAMPAIGNING, ElectionPhase.RESTING, ElectionPhase.STOPPED)
        for event in (Renewed, RenewFailed, TermOver)
    },
    **{
        (phase, event): "nobody looks for leadership while a campaign is under way, so it is over before one leads"
        for phase in (ElectionPhase.LEADING, ElectionPhase.RESIGNING)
        for event in (Leased, Won, Beaten, CampaignFailed)
    },
    **{
        (phase, event): "resigning lasts until it is answered"
        for event in (Resigned, ResignFailed)
        for phase in ElectionPhase
        if phase is not ElectionPhase.RESIGNING
    },
}


def after(duration: float) -> Instant:
    return START + seconds(duration)


def run(*events: Event, state: Election | None = None) -> tuple[Election, list[Effect]]:
    effects: list[Effect] = []
    state = state or Election()
    for event in events:
        state, more = machine.step(state, event, TIMINGS)
        effects.extend(more)
    return state, effects


def led(term: int = 10, lease: int = 7) -> Election:
    """A server that has just won."""
    state, effects = run(
        Tick(START), LeaderRead(START, SeenLeader()), Leased(START, START, lease), Won(after(0.1), term)
    )
    assert effects == [ReadLeader.NOW, Campaign(), LeadershipChange(term), RecordHistory(term)]
    return state


def test_every_phase_handles_every_event_or_lists_why_it_cannot_happen() -> None:
    every = {(phase, event) for phase in ElectionPhase for event in EVENTS}
    assert set(TRANSITIONS) | set(CANNOT_HAPPEN) == every
    assert not set(TRANSITIONS) & set(CANNOT_HAPPEN)


def test_an_event_that_cannot_happen_raises() -> None:
    with pytest.raises(KeyError):
        run(Renewed(START, START, 5))


def test_a_vacancy_that_is_reserved_for_another_server_is_left_to_it_until_the_reservation_is_over() -> None:
    state, effects = run(Tick(START), LeaderRead(START, SeenLeader(reserved_for="c")))
    assert (state.phase, effects) == (ElectionPhase.FOLLOWING, [ReadLeader.NOW])
    state, effects = run(Tick(after(0.25)), LeaderRead(after(0.3), SeenLeader()), state=state)
    assert (state.phase, effects) == (ElectionPhase.CAMPAIGNING, [ReadLeader.NOW, Campaign()])


def test_a_leader_that_steps_down_reserves_the_vacancy_for_its_successor() -> None:
    state, effects = run(Leave(after(1), LossReason.STEPPED_DOWN, seconds(30), "c"), state=led())
    assert effects[-1] == Resign(state.term, state.lease, LossReason.STEPPED_DOWN, "c")
    assert run(Resigned(after(1.1)), state=state)[0].successor == ""


def test_a_failed_resignation_is_retried_until_the_lease_is_over() -> None:
    state, effects = run(Leave(after(1), LossReason.STEPPED_DOWN, seconds(60), "c"), state=led())
    resign = effects[-1]
    state, effects = run(Tick(after(1.5)), ResignFailed(after(2)), Tick(after(2.5)), state=state)
    assert (state.phase, effects) == (ElectionPhase.RESIGNING, [])
    state, effects = run(Tick(after(3)), state=state)
    assert effects == [resign]
    state, effects = run(ResignFailed(after(14)), Tick(after(20)), state=state)
    assert (state.phase, effects) == (ElectionPhase.RESTING, [])


def test_a_vacant_place_makes_a_follower_campaign() -> None:
    state, effects = run(Tick(START), LeaderRead(START, SeenLeader()))
    assert state.phase is ElectionPhase.CAMPAIGNING
    assert effects == [ReadLeader.NOW, Campaign()]


def test_a_follower_looks_three_times_in_a_ttl() -> None:
    state, _ = run(Tick(START), LeaderRead(START, OTHER))
    assert run(Tick(after(4.9)), state=state)[1] == []
    assert run(Tick(after(5)), state=state)[1] == [ReadLeader.NOW]


def test_a_predecessor_that_certainly_died_is_cleared() -> None:
    state, _ = run(Tick(START), LeaderRead(START, OTHER))
    assert run(Tick(after(0.25), dead=True), state=state)[1] == [Clear(5, 6)]


def test_C10_leadership_counts_from_before_the_lease_was_asked_for() -> None:
    state, _ = run(Tick(START), LeaderRead(START, SeenLeader()), Leased(after(3), START, 7), Won(after(4), 10))
    assert machine.leading_until(state, TIMINGS) == START + TIMINGS.renew_deadline


def test_a_victory_that_was_answered_too_late_is_given_back() -> None:
    state, effects = run(Tick(START), LeaderRead(START, SeenLeader()), Leased(after(9), START, 7), Won(after(10), 10))
    assert state.phase is ElectionPhase.RESIGNING
    assert effects[-1] == Resign(10, 7, LossReason.NOT_RENEWED)
    assert not any(isinstance(effect, LeadershipChange) for effect in effects)


def test_a_campaign_without_an_answer_is_recognised_by_its_lease() -> None:
    state, _ = run(Tick(START), LeaderRead(START, SeenLeader()), Leased(after(1), START, 7), CampaignFailed(after(6)))
    assert state.phase is ElectionPhase.FOLLOWING
    state, effects = run(Tick(after(6)), LeaderRead(after(6.1), SeenLeader(10, 10, 7)), state=state)
    assert state.phase is ElectionPhase.LEADING
    assert effects == [ReadLeader.NOW, LeadershipChange(10), RecordHistory(10)]
    assert machine.leading_until(state, TIMINGS) == START + TIMINGS.renew_deadline


def test_a_campaign_without_an_answer_that_another_server_won_is_lost() -> None:
    state, _ = run(Tick(START), LeaderRead(START, SeenLeader()), Leased(after(1), START, 7), CampaignFailed(after(6)))
    state, effects = run(Tick(after(6)), LeaderRead(after(6.1), OTHER), state=state)
    assert state.phase is ElectionPhase.FOLLOWING
    assert effects == [ReadLeader.NOW]


def test_a_leader_renews_at_its_interval_and_once_at_a_time() -> None:
    assert run(Tick(after(1.9)), state=led())[1] == []
    state, effects = run(Tick(after(2)), Tick(after(4)), Tick(after(6)), state=led())
    assert effects == [Renew(10, 7)]
    assert run(RenewFailed(after(6)), Tick(after(6.25)), state=state)[1] == [Renew(10, 7)]


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    state, _ = run(Tick(after(2)), Renewed(after(6), after(2), 10), state=led())
    assert machine.leading_until(state, TIMINGS) == after(2) + TIMINGS.renew_deadline


def test_a_leader_that_cannot_prove_its_term_in_time_stops_and_gives_the_key_back() -> None:
    state, effects = run(Tick(after(10)), state=led())
    assert state.phase is ElectionPhase.RESIGNING
    assert effects == [LeadershipChange(10, LossReason.NOT_RENEWED), Resign(10, 7, LossReason.NOT_RENEWED)]
    assert machine.leading_until(state, TIMINGS) == NEVER


def test_a_renewal_that_is_answered_after_the_deadline_ends_the_leadership() -> None:
    state, _ = run(Tick(after(2)), Renewed(after(12), after(2), 10), state=led())
    assert state.phase is ElectionPhase.RESIGNING


def test_a_term_that_is_over_ends_the_leadership_at_once() -> None:
    state, effects = run(Tick(after(2)), TermOver(after(3), 10), state=led())
    assert state.phase is ElectionPhase.FOLLOWING
    assert effects[-1] == LeadershipChange(10, LossReason.TERM_OVER)


def test_a_term_that_a_worker_found_over_is_given_back_even_if_the_key_is_still_there() -> None:
    state, effects = run(Tick(after(1), over=True), state=led())
    assert state.phase is ElectionPhase.RESIGNING
    assert effects == [LeadershipChange(10, LossReason.TERM_OVER), Resign(10, 7, LossReason.TERM_OVER)]


def test_a_leader_that_sees_another_term_stops() -> None:
    state, effects = run(LeaderRead(after(1), OTHER), state=led())
    assert state.phase is ElectionPhase.RESIGNING
    assert LeadershipChange(10, LossReason.TERM_OVER) in effects


def test_after_stepping_down_a_server_rests_and_then_follows_again() -> None:
    state, effects = run(Leave(after(1), LossReason.STEPPED_DOWN, seconds(30)), Resigned(after(1.1)), state=led())
    assert effects == [LeadershipChange(10, LossReason.STEPPED_DOWN), Resign(10, 7, LossReason.STEPPED_DOWN)]
    assert state.phase is ElectionPhase.RESTING
    assert run(Tick(after(30)), state=state)[0].phase is ElectionPhase.RESTING
    assert run(Tick(after(31)), state=state)[0].phase is ElectionPhase.FOLLOWING


def test_a_server_is_no_candidate_from_its_decision_to_step_down_on() -> None:
    state, _ = run(Leave(after(1), LossReason.STEPPED_DOWN, seconds(30)), state=led())
    assert state.phase is ElectionPhase.RESIGNING
    assert [machine.rests(state, after(at)) for at in (1, 30.9, 31)] == [True, True, False]


def test_a_leader_that_could_not_prove_its_term_stays_a_candidate() -> None:
    state, _ = run(Tick(after(11)), state=led())
    assert state.phase is ElectionPhase.RESIGNING
    assert not machine.rests(state, after(11))


def test_each_handover_doubles_the_rest_up_to_ten_minutes() -> None:
    state, rests = led(), []
    now = after(1)
    for _ in range(6):
        state, _ = run(Leave(now, LossReason.HANDED_OVER), Resigned(now), state=state)
        rests.append((state.rest_until - now).total_seconds())
        now = state.rest_until
        state, _ = run(
            Tick(now),
            Tick(now),
            LeaderRead(now, SeenLeader()),
            Leased(now, now, 8),
            Won(now, state.term + 20),
            state=state,
        )
        assert state.phase is ElectionPhase.LEADING
    assert rests == [60, 120, 240, 480, 600, 600]


def test_a_long_good_term_makes_the_next_rest_short_again() -> None:
    state, _ = run(Leave(after(1), LossReason.HANDED_OVER), Resigned(after(1)), state=led())
    now = state.rest_until
    state, _ = run(Tick(now), Tick(now), LeaderRead(now, SeenLeader()), Leased(now, now, 8), Won(now, 30), state=state)
    later = now + seconds(600)
    state, _ = run(Leave(later, LossReason.HANDED_OVER), state=state)
    assert state.rest_until - later == seconds(60)


@pytest.mark.parametrize("why", [LossReason.PAUSED, LossReason.DUPLICATE, LossReason.FOREIGN])
def test_a_reason_not_to_campaign_lasts_until_its_rejoin(why: LossReason) -> None:
    state, _ = run(Leave(after(1), why), Resigned(after(1.1)), state=led())
    assert run(Tick(after(100_000)), state=state)[0].phase is ElectionPhase.RESTING
    assert run(Rejoin(after(2), why), state=state)[0].phase is ElectionPhase.FOLLOWING


def test_an_operators_pause_outlasts_another_reason_that_came_and_went() -> None:
    state, _ = run(
        Leave(START, LossReason.PAUSED), Leave(after(1), LossReason.DUPLICATE), Rejoin(after(2), LossReason.DUPLICATE)
    )
    assert state.phase is ElectionPhase.RESTING
    assert run(Rejoin(after(3), LossReason.PAUSED), state=state)[0].phase is ElectionPhase.FOLLOWING


def test_a_stop_is_final_whatever_comes_after_it() -> None:
    state, _ = run(
        Leave(after(1), LossReason.STOPPED),
        Leave(after(1), LossReason.STEPPED_DOWN, seconds(1)),
        Rejoin(after(1), LossReason.STOPPED),
        Rejoin(after(1), LossReason.DUPLICATE),
        Resigned(after(2)),
        Tick(after(100)),
        state=led(),
    )
    assert state.phase is ElectionPhase.STOPPED


@pytest.mark.parametrize("why", [LossReason.STOPPED, LossReason.PAUSED])
def test_what_a_given_up_campaign_wins_is_given_back(why: LossReason) -> None:
    state, _ = run(Tick(START), LeaderRead(START, SeenLeader()), Leave(START, why))
    state, effects = run(Leased(START, START, 7), Won(after(1), 10), state=state)
    assert effects == [Resign(10, 7, why)]
    assert run(Resigned(after(2)), state=state)[0].phase is (
        ElectionPhase.STOPPED if why is LossReason.STOPPED else ElectionPhase.RESTING
    )


def test_a_server_that_rests_gives_back_what_an_unanswered_campaign_won() -> None:
    state, _ = run(Tick(START), LeaderRead(START, SeenLeader()), Leased(START, START, 7), CampaignFailed(after(5)))
    state, effects = run(
        Leave(after(5), LossReason.PAUSED), Tick(after(5)), LeaderRead(after(6), SeenLeader(10, 10, 7)), state=state
    )
    assert effects == [ReadLeader.NOW, Resign(10, 7, LossReason.PAUSED)]


def test_a_given_up_campaign_that_is_wanted_again_is_not_begun_twice() -> None:
    state, _ = run(
        Tick(START), LeaderRead(START, SeenLeader()), Leave(START, LossReason.PAUSED), Rejoin(START, LossReason.PAUSED)
    )
    state, effects = run(Tick(START), LeaderRead(START, SeenLeader()), state=state)
    assert effects == [ReadLeader.NOW]
    assert run(Leased(START, START, 7), Won(after(1), 10), state=state)[0].phase is ElectionPhase.LEADING


def test_leadership_is_never_believed_past_the_lease() -> None:
    state = led()
    assert machine.leading_until(state, TIMINGS) < machine.work_until(state, TIMINGS)


class Shell(RuleBasedStateMachine):
    """Everything that the elector can do to the state machine: one thing after another, answered in order, while time
    passes, a watch makes it look, and people and workers come in at any moment."""

    def __init__(self) -> None:
        super().__init__()
        self.state = Election()
        self.now = START
        self.queue: list[Effect] = []
        self.campaign_step = 0
        self.leases = 0
        self.terms = 100
        self.told: list[LeadershipChange] = []
        self.proofs: set[Instant] = set()
        """The moments from which a proof may count."""

    def feed(self, event: Event) -> None:
        assert (self.state.phase, type(event)) in TRANSITIONS, f"{self.state.phase} does not know {event}"
        self.state, effects = machine.step(self.state, event, TIMINGS)
        for effect in effects:
            if isinstance(effect, LeadershipChange):
                self.told.append(effect)
            elif effect is not ReadLeader.NOW or ReadLeader.NOW not in self.queue[1:]:
                self.queue.append(effect)

    @rule(by=st.sampled_from([0.001, 0.25, 1, 2, 5, 11, 40, 700]), dead=st.booleans(), over=st.booleans())
    def time_passes(self, by: float, dead: bool, over: bool) -> None:
        self.now += seconds(by)
        self.feed(
            Tick(
                self.now,
                dead=dead and self.state.phase is ElectionPhase.FOLLOWING,
                over=over and self.state.phase is ElectionPhase.LEADING,
            )
        )

    @rule(by=st.floats(0, 20))
    def frozen(self, by: float) -> None:
        self.now += seconds(by)

    @rule()
    def the_watch_hints(self) -> None:
        if (
            self.state.phase in (ElectionPhase.FOLLOWING, ElectionPhase.RESTING)
            and ReadLeader.NOW not in self.queue[1:]
        ):
            self.queue.append(ReadLeader.NOW)

    @rule(why=st.sampled_from(LossReason), rest=st.sampled_from([None, seconds(5), seconds(30)]))
    def somebody_wants_it_to_leave(self, why: LossReason, rest: Duration | None) -> None:
        was = self.state
        self.feed(Leave(self.now, why, rest))
        assert self.state.phase is not ElectionPhase.LEADING
        if was.phase is ElectionPhase.LEADING:
            assert self.told[-1] == LeadershipChange(was.term, why)
            assert isinstance(self.queue[-1], Resign)

    @rule(why=st.sampled_from(LossReason))
    def a_reason_is_gone(self, why: LossReason) -> None:
        self.feed(Rejoin(self.now, why))

    @precondition(lambda self: self.queue)
    @rule(answer=st.sampled_from(["good", "bad", "none"]), ours=st.booleans())
    def the_store_answers(self, answer: str, ours: bool) -> None:
        effect = self.queue[0]
        if isinstance(effect, Campaign) and self._campaign_goes_on(answer):
            return
        self.queue.pop(0)
        event = self._answer(effect, answer, ours=ours)
        self.campaign_step = 0
        if event is not None:
            self.feed(event)

    def _campaign_goes_on(self, answer: str) -> bool:
        if self.campaign_step == 0 and answer != "none":
            self.campaign_step, self.leases = 1, self.leases + 1
            sent = self.now - seconds(1)
            self.proofs.add(sent)
            self.feed(Leased(self.now, sent, self.leases))
            return True
        return False

    def _answer(self, effect: Effect, answer: str, *, ours: bool) -> Event | None:
        now = self.now
        if isinstance(effect, Campaign):
            if answer == "good":
                self.terms += 1
                return Won(now, self.terms)
            return Beaten(now, OTHER) if answer == "bad" else CampaignFailed(now)
        if isinstance(effect, Renew):
            if answer == "good" and self.state.phase is ElectionPhase.LEADING:
                self.proofs.add(now - seconds(1))
                return Renewed(now, now - seconds(1), effect.term)
            return TermOver(now, effect.term) if answer == "bad" else RenewFailed(now)
        if isinstance(effect, Resign):
            return Resigned(now)
        if isinstance(effect, RecordHistory):
            return None
        if answer == "none":
            return LeaderReadFailed(now)
        return LeaderRead(now, self._seen(ours=ours, vacant=answer == "good"))

    def _seen(self, *, ours: bool, vacant: bool) -> SeenLeader:
        if ours and self.state.lease:
            self.terms += 1
            term = self.state.term or self.terms
            return SeenLeader(term, term, self.state.lease)
        return SeenLeader() if vacant else OTHER

    @invariant()
    def a_belief_rests_on_a_proof_counted_from_before_it_was_sent(self) -> None:
        if self.state.phase is ElectionPhase.LEADING:
            assert self.state.proven in self.proofs
            assert machine.leading_until(self.state, TIMINGS) == self.state.proven + TIMINGS.renew_deadline
        else:
            assert machine.leading_until(self.state, TIMINGS) == NEVER

    @invariant()
    def beginnings_and_ends_are_told_in_turn(self) -> None:
        for begun, ended in zip(self.told[::2], self.told[1::2], strict=False):
            assert begun.lost is None
            assert ended.lost is not None
            assert begun.term == ended.term
        assert (len(self.told) % 2 == 1) == (self.state.phase is ElectionPhase.LEADING)

    @invariant()
    def what_is_under_way_is_known(self) -> None:
        campaigns = [effect for effect in self.queue if isinstance(effect, Campaign)]
        resignations = [effect for effect in self.queue if isinstance(effect, Resign)]
        assert len(campaigns) == int(self.state.campaigning)
        assert len(resignations) == int(self.state.phase is ElectionPhase.RESIGNING)

    @invariant()
    def whoever_is_withheld_does_not_begin_to_lead(self) -> None:
        if self.state.withheld:
            assert self.state.phase in (ElectionPhase.RESTING, ElectionPhase.RESIGNING, ElectionPhase.STOPPED)


TestShell = Shell.TestCase
TestShell.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=30))
@settings(deadline=None)
def test_a_leader_without_answers_stops_by_the_first_tick_after_its_deadline(steps: Sequence[float]) -> None:
    state, now = led(), after(0.1)
    for step in steps:
        now += seconds(step)
        state, _ = run(Tick(now), state=state)
        if state.phase is not ElectionPhase.LEADING:
            break
        assert now < START + TIMINGS.renew_deadline
