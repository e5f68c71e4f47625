"""The prober: thousands of targets, each on its own cadence, on one epoll.

`turn` does everything that can be done now without waiting, and says when to call it again; between two calls it is
enough to wait for its descriptor. Answers are read before deadlines are looked at, so a prober that was away does not
call timed out what has answered meanwhile. One turn starts a bounded number of probes, so that answers never wait for
long behind starts.
"""

from __future__ import annotations

import heapq
import itertools
import select
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from holdfast.balancer.cadence import (
    ABSENT,
    Absences,
    first,
    following,
    hastened,
    interval,
    moved,
    resumed,
    spread,
)
from holdfast.balancer.checks import Carrier, Verdict
from holdfast.balancer.echoes import Echoes
from holdfast.balancer.flight import Flight, Lane
from holdfast.balancer.results import Code, Pace, Result, Target
from holdfast.balancer.streams import Streams
from holdfast.model.time import Duration, Instant

_STARTS_PER_TURN = 64
_EVENTS_PER_TURN = 1_024


class Way(Protocol):
    """What carries probes to their targets."""

    def launch(self, flight: Flight) -> None: ...

    def abandon(self, flight: Flight) -> None: ...


class _Entry(NamedTuple):
    """Something to do about a lane at a time: start it (no flight), or end that flight if it is still under way."""

    when: int
    number: int
    lane: Lane
    flight: Flight | None


class Prober:
    """Found results go to `found`, how late each probe started (in nanoseconds) to `observe`."""

    def __init__(
        self,
        now: Callable[[], Instant],
        roll: Callable[[], float],
        found: Callable[[Result], None],
        observe: Callable[[int], None],
    ) -> None:
        """`roll` gives random numbers from -1 to 1."""
        self._now = now
        self._roll = roll
        self._found = found
        self._observe = observe
        self._epoll = select.epoll()
        self._streams = Streams(self._epoll, self._ended)
        self._echoes = Echoes(self._epoll, self._ended)
        self._carriers: Mapping[Carrier, Way] = {Carrier.STREAM: self._streams, Carrier.ECHO: self._echoes}
        self._lanes: dict[str, Lane] = {}
        self._agenda: list[_Entry] = []
        self._numbers = itertools.count()
        self._absences = Absences()

    def fileno(self) -> int:
        """Readable when `turn` has something to do."""
        return self._epoll.fileno()

    @property
    def targets(self) -> int:
        return len(self._lanes)

    def assign(self, targets: Iterable[Target], paces: Mapping[str, Pace]) -> None:
        """Probes these from now on, and nothing else. What did not change keeps its cadence."""
        wanted = {target.id: target for target in targets}
        for lane in [lane for lane in self._lanes.values() if wanted.get(lane.target.id) != lane.target]:
            del self._lanes[lane.target.id]
            self._abandon(lane)
        new = [Lane(target, paces.get(name, Pace.NORMAL)) for name, target in wanted.items() if name not in self._lanes]
        now = self._now()  # making thousands of lanes takes a moment, which must not look as if the first were late
        for index, lane in enumerate(new, start=len(self._lanes)):
            lane.beat = lane.due = first(now, lane.every, spread(index))
            self._lanes[lane.target.id] = lane
            self._plan(lane.due, lane)
        self.pace({name: paces.get(name, Pace.NORMAL) for name in wanted})

    def pace(self, paces: Mapping[str, Pace]) -> None:
        """These targets have another interval from now on."""
        now = self._now()
        for name, pace in paces.items():
            lane = self._lanes.get(name)
            if lane is None:
                continue
            every = interval(lane.target.check, pace)
            if every < lane.every and lane.flight is None:
                beat = hastened(lane.beat, lane.last, now, every)
                if beat < lane.due:
                    lane.beat = lane.due = beat
                    self._plan(beat, lane)
            lane.every = every

    def turn(self) -> Instant:
        """Does what is due; when to call again even if nothing happens on the descriptor."""
        now = self._now()
        if self._absences.woke(now) > ABSENT:
            self._resume(now)
        self._listen()
        if self._work_off(now):
            self._listen()
        return self._absences.sleeps(now, Instant(self._agenda[0].when) if self._agenda else None)

    def leave_network(self) -> None:
        """Ends what is tied to the network namespace that this process was in; probing goes on in the new one."""
        for lane in self._lanes.values():
            if lane.flight is not None:
                self._abandon(lane)
                self._schedule(lane, self._now())
        self._echoes.close()

    def close(self) -> None:
        for lane in self._lanes.values():
            self._abandon(lane)
        self._lanes.clear()
        self._agenda.clear()
        self._echoes.close()
        self._epoll.close()

    def _listen(self) -> None:
        streams = self._streams.flights
        for fd, events in self._epoll.poll(0, _EVENTS_PER_TURN):
            if fd in streams:
                self._streams.handle(fd, events)
            else:
                self._echoes.handle(fd, events)

    def _work_off(self, now: Instant) -> int:
        """Starts and ends what is due; how many probes were started."""
        started = 0
        while self._agenda and self._agenda[0].when <= now.ns and started < _STARTS_PER_TURN:
            entry = heapq.heappop(self._agenda)
            lane = entry.lane
            if entry.flight is not None:
                if entry.flight is lane.flight:
                    self._expire(entry.flight)
            elif lane.flight is None and lane.due.ns == entry.when and self._lanes.get(lane.target.id) is lane:
                self._start(lane)
                started += 1
        return started

    def _start(self, lane: Lane) -> None:
        now = self._now()
        self._observe(now.ns - lane.due.ns)
        lane.last = now
        if lane.unusable:
            self._tell(lane, now, now, Verdict(False, Code.SOCKERR, lane.unusable))
            return
        lane.flight = flight = Flight(lane, now)
        self._plan(Instant(now.ns + lane.timeout_ns), lane, flight)
        self._carriers[lane.carrier].launch(flight)

    def _expire(self, flight: Flight) -> None:
        self._carriers[flight.lane.carrier].abandon(flight)
        self._ended(flight, flight.timed_out())

    def _ended(self, flight: Flight, verdict: Verdict) -> None:
        flight.lane.flight = None
        self._tell(flight.lane, flight.started, self._now(), verdict)

    def _tell(self, lane: Lane, started: Instant, finished: Instant, verdict: Verdict) -> None:
        late = self._absences.late(lane.due, started, lane.bound)
        latency = Duration(microseconds=(finished.ns - started.ns) // 1_000)
        self._found(
            Result(
                lane.target.id,
                verdict.passed,
                verdict.code,
                latency,
                started,
                late,
                verdict.detail,
                verdict.answered_by,
            )
        )
        self._schedule(lane, finished)

    def _schedule(self, lane: Lane, finished: Instant) -> None:
        lane.beat = following(lane.beat, finished, lane.every)
        lane.due = moved(lane.beat, finished, lane.every, lane.target.check.jitter, self._roll())
        self._plan(lane.due, lane)

    def _plan(self, when: Instant, lane: Lane, flight: Flight | None = None) -> None:
        heapq.heappush(self._agenda, _Entry(when.ns, next(self._numbers), lane, flight))

    def _abandon(self, lane: Lane) -> None:
        if lane.flight is not None:
            self._carriers[lane.carrier].abandon(lane.flight)
            lane.flight = None

    def _resume(self, now: Instant) -> None:
        """After an absence: whoever waits goes on in step; what is under way is listened to first."""
        for lane in self._lanes.values():
            if lane.flight is None and lane.due < now:
                lane.beat = lane.due = resumed(lane.beat, now, lane.every)
                self._plan(lane.due, lane)
