"""Prober: probes thousands of targets, each on its own schedule, on one epoll.

`turn` does everything that can be done now without waiting, and returns when to call it again; between two calls it is
enough to wait for its descriptor. Answers are read before timeouts are checked, so that after a stall a target that
has answered does not time out. One turn starts a bounded number of probes, so that answers never wait long behind
starts.
"""

from __future__ import annotations

import heapq
import itertools
import select
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from holdfast.balancer.probing.checks import Carrier, ProbeVerdict
from holdfast.balancer.probing.icmp_transport import IcmpTransport
from holdfast.balancer.probing.messages import ProbeCode, ProbeInterval, ProbeResult, TargetSpec
from holdfast.balancer.probing.probe import Probe, ProbeTarget, Transport
from holdfast.balancer.probing.schedule import (
    LONG_STALL,
    ProberStalls,
    brought_forward,
    first_start,
    interval,
    jittered,
    next_slot,
    realigned,
    spread,
)
from holdfast.balancer.probing.tcp_transport import TcpTransport
from holdfast.balancer.probing.udp_transport import UdpTransport
from holdfast.model.base.time import Duration, Instant

_STARTS_PER_TURN = 64
_EVENTS_PER_TURN = 1_024
_TICK_BITS = 23  # 8.4 ms, in nanoseconds
_TICK = 1 << _TICK_BITS

_Entry = tuple[int, int, ProbeTarget]
"""Due time, a unique number that breaks ties, and the target."""


class TimeoutWheel:
    """Timeouts of running probes, in ticks.

    Nearly every probe ends long before its timeout, so setting and dropping one must cost nothing that grows with the
    number of probes. A timeout expires at the end of its tick: up to one tick late, never early.
    """

    def __init__(self) -> None:
        self._ticks: dict[int, list[Probe]] = {}
        self._swept = 0

    def set(self, probe: Probe, when: int) -> None:
        tick = when >> _TICK_BITS
        probes = self._ticks.get(tick)
        if probes is None:
            self._ticks[tick] = [probe]
        else:
            probes.append(probe)

    def expired(self, now: int) -> Iterator[Probe]:
        """Running probes whose timeout has expired, in the order of their timeouts."""
        tick = now >> _TICK_BITS
        if tick == self._swept:
            return
        self._swept = tick
        for over in sorted(known for known in self._ticks if known < tick):
            for probe in self._ticks.pop(over):
                if probe.target.probe is probe:
                    yield probe

    def next(self) -> int | None:
        """Time at which the next timeout may expire."""
        return (min(self._ticks) + 1) << _TICK_BITS if self._ticks else None


class Prober:
    """Passes each result to `on_result`, and the lateness of each start to `on_start`.

    With `on_pass`, a pass that changes nothing goes there: that of a target at its normal interval whose last result
    was a pass. The first pass after anything else is a result, so that consecutive failures are counted right.

    Times are nanoseconds of the boot clock.
    """

    def __init__(
        self,
        now: Callable[[], int],
        random: Callable[[], float],
        on_result: Callable[[ProbeResult], None],
        on_start: Callable[[int], None],
        on_pass: Callable[[ProbeTarget, ProbeCode, bool], None] | None = None,
        networks: Sequence[str] = (),
    ) -> None:
        """`random` returns random numbers from -1 to 1. `on_pass` gets target, code, and whether it was late. Only
        addresses in `networks` are probed; all, if there are none."""
        self._networks = networks
        self._now = now
        self._random = random
        self._on_result = on_result
        self._on_start = on_start
        self._on_pass = on_pass
        self._epoll = select.epoll()
        self._tcp = TcpTransport(self._epoll, self._ended)
        self._icmp = IcmpTransport(self._epoll, self._ended)
        self._udp = UdpTransport(self._epoll, self._ended)
        self._transports: Mapping[Carrier, Transport] = {
            Carrier.STREAM: self._tcp,
            Carrier.ECHO: self._icmp,
            Carrier.DATAGRAM: self._udp,
        }
        self._targets: dict[str, ProbeTarget] = {}
        self._queue: list[_Entry] = []
        self._timeouts = TimeoutWheel()
        self._polled = 0
        self._numbers = itertools.count()
        self._stalls = ProberStalls()

    def fileno(self) -> int:
        """Readable when `turn` has something to do."""
        return self._epoll.fileno()

    @property
    def targets(self) -> int:
        return len(self._targets)

    def latencies(self) -> Mapping[str, int]:
        """Return how long the last probe of each target took, in nanoseconds; -1 if it did not pass."""
        return {name: target.took for name, target in self._targets.items() if target.took is not None}

    def assign(
        self, targets: Iterable[TargetSpec], intervals: Mapping[str, ProbeInterval], first_within: int = 0
    ) -> None:
        """Replace all targets. Unchanged ones keep their schedule; new ones start within `first_within`, unless 0."""
        wanted = {spec.id: spec for spec in targets}
        self._tcp.read_local_ports()
        for target in [target for target in self._targets.values() if wanted.get(target.spec.id) != target.spec]:
            del self._targets[target.spec.id]
            self._abandon(target)
        missing = [spec for name, spec in wanted.items() if name not in self._targets]
        new = [self._target(spec, intervals) for spec in missing]
        now = self._now()  # after creating the targets, which takes a while, so that the first is not late already
        for index, target in enumerate(new, start=len(self._targets)):
            target.slot = target.due = first_start(now, target.every, first_within, spread(index))
            self._targets[target.spec.id] = target
            self._plan(target)
        self.set_intervals({name: intervals.get(name, ProbeInterval.NORMAL) for name in wanted})

    def _target(self, spec: TargetSpec, intervals: Mapping[str, ProbeInterval]) -> ProbeTarget:
        chosen = intervals.get(spec.id, ProbeInterval.NORMAL)
        return ProbeTarget(spec, chosen, self._transports, self._networks)

    def set_intervals(self, intervals: Mapping[str, ProbeInterval]) -> None:
        """Change the interval of these targets."""
        now = self._now()
        for name, chosen in intervals.items():
            target = self._targets.get(name)
            if target is None:
                continue
            every = interval(target.spec.check, chosen)
            if every < target.every and target.probe is None:
                slot = brought_forward(target.slot, target.last, now, every)
                if slot < target.due:
                    target.slot = target.due = slot
                    self._plan(target)
            target.every = every
            target.normal = chosen is ProbeInterval.NORMAL

    def turn(self) -> int:
        """Do what is due. Returns when to call again even if the descriptor is not readable."""
        now = self._now()
        if self._stalls.woke(now) > LONG_STALL:
            self._resume(now)
        self._poll()
        for probe in self._timeouts.expired(now):
            probe.target.transport.abandon(probe)
            self._ended(probe, probe.timed_out())
        if self._start_due(now):
            self._poll()
        return self._stalls.sleeps(now, self._next(now))

    def leave_network(self) -> None:
        """End all probes in the old network namespace; probing continues in the new one."""
        for target in self._targets.values():
            if target.probe is not None:
                self._abandon(target)
                self._schedule(target, self._now())
        self._icmp.close()
        self._tcp.read_local_ports()

    def close(self) -> None:
        for target in self._targets.values():
            self._abandon(target)
        self._targets.clear()
        self._queue.clear()
        self._icmp.close()
        self._epoll.close()

    def _poll(self) -> None:
        tcp_probes = self._tcp.probes
        events = self._epoll.poll(0, _EVENTS_PER_TURN)
        self._polled = self._now()
        for fd, event in events:
            if fd in tcp_probes:
                self._tcp.handle(fd, event)
            elif fd in self._udp.probes:
                self._udp.handle(fd, event)
            else:
                self._icmp.handle(fd, event)

    def _start_due(self, now: int) -> int:
        """Start a bounded number of due probes. Returns how many."""
        queue, started = self._queue, 0
        while queue and queue[0][0] <= now and started < _STARTS_PER_TURN:
            when, _, target = heapq.heappop(queue)
            if target.probe is None and target.due == when and self._targets.get(target.id) is target:
                self._start(target)
                started += 1
        return started

    def _start(self, target: ProbeTarget) -> None:
        self._polled = target.last = now = self._now()
        self._on_start(now - target.due)
        if target.unusable and not target.prepare(self._transports):
            self._report(target, now, ProbeVerdict(False, ProbeCode.SOCKERR, target.unusable))
            return
        target.probe = probe = Probe(target, now)
        self._timeouts.set(probe, now + target.timeout)
        target.transport.launch(probe)

    def _ended(self, probe: Probe, verdict: ProbeVerdict) -> None:
        probe.target.probe = None
        self._report(probe.target, probe.started, verdict)

    def _report(self, target: ProbeTarget, started: int, verdict: ProbeVerdict) -> None:
        finished = self._polled  # it ended before the poll; handling other events first does not count as latency
        passed, code, detail, answered_by = verdict
        if not passed:  # B14: the process may have been stopped in the middle of this turn
            self._stalls.woke(self._now())
        late = self._stalls.late(target.due, started, target.tolerance)
        target.took = finished - started if passed else -1
        if passed and target.passing and target.normal and self._on_pass is not None:
            self._on_pass(target, code, late)
            self._schedule(target, finished)
            return
        target.passing = passed
        latency = Duration(0, 0, (finished - started) // 1_000)
        at, generation = Instant(started), target.spec.generation
        self._on_result(ProbeResult(target.id, passed, code, latency, at, late, detail, answered_by, generation))
        self._schedule(target, finished)

    def _schedule(self, target: ProbeTarget, finished: int) -> None:
        target.slot = next_slot(target.slot, finished, target.every)
        target.due = jittered(target.slot, finished, target.every, target.jitter, self._random())
        self._plan(target)

    def _plan(self, target: ProbeTarget) -> None:
        heapq.heappush(self._queue, (target.due, next(self._numbers), target))

    def _next(self, now: int) -> int | None:
        """Next time with something to do. Timeouts matter only when no start comes before them."""
        due = self._queue[0][0] if self._queue else None
        if due is not None and due < now + _TICK:
            return due
        deadline = self._timeouts.next()
        return due if deadline is None else deadline if due is None else min(due, deadline)

    def _abandon(self, target: ProbeTarget) -> None:
        if target.probe is not None:
            target.transport.abandon(target.probe)
            target.probe = None

    def _resume(self, now: int) -> None:
        """After a long stall: waiting targets continue in their slots; running probes get their answers read first."""
        for target in self._targets.values():
            if target.probe is None and target.due < now:
                target.slot = target.due = realigned(target.slot, now, target.every)
                self._plan(target)
