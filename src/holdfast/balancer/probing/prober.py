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

from holdfast.balancer.probing.checks import Carrier, ProbeVerdict
from holdfast.balancer.probing.icmp import IcmpTransport
from holdfast.balancer.probing.messages import ProbeCode, ProbeInterval, ProbeResult, TargetSpec
from holdfast.balancer.probing.probe import Probe, ProbeTarget, Transport
from holdfast.balancer.probing.schedule import (
    ABSENT,
    ProberStalls,
    first,
    following,
    hastened,
    interval,
    moved,
    resumed,
    spread,
)
from holdfast.balancer.probing.tcp import TcpTransport
from holdfast.balancer.probing.timeouts import TICK, TimeoutWheel
from holdfast.model.base.time import Duration, Instant

_STARTS_PER_TURN = 64
_EVENTS_PER_TURN = 1_024


_Entry = tuple[int, int, ProbeTarget]
"""When a lane is due, a number that no other entry has, and the lane."""


class Prober:
    """Results go to `found`, how late each probe started to `observe`. Times are nanoseconds of the boot clock."""

    def __init__(
        self,
        now: Callable[[], int],
        roll: Callable[[], float],
        found: Callable[[ProbeResult], None],
        observe: Callable[[int], None],
    ) -> None:
        """`roll` gives random numbers from -1 to 1."""
        self._now = now
        self._roll = roll
        self._found = found
        self._observe = observe
        self._epoll = select.epoll()
        self._streams = TcpTransport(self._epoll, self._ended)
        self._echoes = IcmpTransport(self._epoll, self._ended)
        self._ways: Mapping[Carrier, Transport] = {Carrier.STREAM: self._streams, Carrier.ECHO: self._echoes}
        self._lanes: dict[str, ProbeTarget] = {}
        self._agenda: list[_Entry] = []
        self._deadlines = TimeoutWheel()
        self._heard = 0
        self._numbers = itertools.count()
        self._absences = ProberStalls()

    def fileno(self) -> int:
        """Readable when `turn` has something to do."""
        return self._epoll.fileno()

    @property
    def targets(self) -> int:
        return len(self._lanes)

    def assign(self, targets: Iterable[TargetSpec], paces: Mapping[str, ProbeInterval]) -> None:
        """Probes these from now on, and nothing else. What did not change keeps its cadence."""
        wanted = {target.id: target for target in targets}
        for lane in [lane for lane in self._lanes.values() if wanted.get(lane.target.id) != lane.target]:
            del self._lanes[lane.target.id]
            self._abandon(lane)
        missing = [target for name, target in wanted.items() if name not in self._lanes]
        new = [ProbeTarget(target, paces.get(target.id, ProbeInterval.NORMAL), self._ways) for target in missing]
        now = self._now()  # making thousands of lanes takes a moment, which must not look as if the first were late
        for index, lane in enumerate(new, start=len(self._lanes)):
            lane.beat = lane.due = first(now, lane.every, spread(index))
            self._lanes[lane.target.id] = lane
            self._plan(lane)
        self.pace({name: paces.get(name, ProbeInterval.NORMAL) for name in wanted})

    def pace(self, paces: Mapping[str, ProbeInterval]) -> None:
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
                    self._plan(lane)
            lane.every = every

    def turn(self) -> int:
        """Does what is due; when to call again even if nothing happens on the descriptor."""
        now = self._now()
        if self._absences.woke(now) > ABSENT:
            self._resume(now)
        self._listen()
        for flight in self._deadlines.passed(now):
            flight.lane.way.abandon(flight)
            self._ended(flight, flight.timed_out())
        if self._start_due(now):
            self._listen()
        return self._absences.sleeps(now, self._next(now))

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
        events = self._epoll.poll(0, _EVENTS_PER_TURN)
        self._heard = self._now()
        for fd, event in events:
            if fd in streams:
                self._streams.handle(fd, event)
            else:
                self._echoes.handle(fd, event)

    def _start_due(self, now: int) -> int:
        """Starts probes that are due, so many at a time; how many."""
        agenda, started = self._agenda, 0
        while agenda and agenda[0][0] <= now and started < _STARTS_PER_TURN:
            when, _, lane = heapq.heappop(agenda)
            if lane.flight is None and lane.due == when and self._lanes.get(lane.id) is lane:
                self._start(lane)
                started += 1
        return started

    def _start(self, lane: ProbeTarget) -> None:
        self._heard = lane.last = now = self._now()
        self._observe(now - lane.due)
        if lane.unusable:
            self._tell(lane, now, ProbeVerdict(False, ProbeCode.SOCKERR, lane.unusable))
            return
        lane.flight = flight = Probe(lane, now)
        self._deadlines.set(flight, now + lane.timeout)
        lane.way.launch(flight)

    def _ended(self, flight: Probe, verdict: ProbeVerdict) -> None:
        flight.lane.flight = None
        self._tell(flight.lane, flight.started, verdict)

    def _tell(self, lane: ProbeTarget, started: int, verdict: ProbeVerdict) -> None:
        finished = (
            self._heard
        )  # whatever ended, had ended when we listened: what was handled before it did not delay it
        passed, code, detail, answered_by = verdict
        if not passed:  # it may have been stopped in the middle of a turn, and know of it only now (B14)
            self._absences.woke(self._now())
        late = self._absences.late(lane.due, started, lane.bound)
        latency = Duration(0, 0, (finished - started) // 1_000)
        self._found(ProbeResult(lane.id, passed, code, latency, Instant(started), late, detail, answered_by))
        self._schedule(lane, finished)

    def _schedule(self, lane: ProbeTarget, finished: int) -> None:
        lane.beat = following(lane.beat, finished, lane.every)
        lane.due = moved(lane.beat, finished, lane.every, lane.jitter, self._roll())
        self._plan(lane)

    def _plan(self, lane: ProbeTarget) -> None:
        heapq.heappush(self._agenda, (lane.due, next(self._numbers), lane))

    def _next(self, now: int) -> int | None:
        """When there is something to do again. Deadlines are asked for only when no start comes before them anyway."""
        due = self._agenda[0][0] if self._agenda else None
        if due is not None and due < now + TICK:
            return due
        deadline = self._deadlines.next()
        return due if deadline is None else deadline if due is None else min(due, deadline)

    def _abandon(self, lane: ProbeTarget) -> None:
        if lane.flight is not None:
            lane.way.abandon(lane.flight)
            lane.flight = None

    def _resume(self, now: int) -> None:
        """After an absence: whoever waits goes on in step; what is under way is listened to first."""
        for lane in self._lanes.values():
            if lane.flight is None and lane.due < now:
                lane.beat = lane.due = resumed(lane.beat, now, lane.every)
                self._plan(lane)
