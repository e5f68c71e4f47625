"""The prober as a whole: assignments, intervals, stalls, and thousands of targets at once."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from holdfast.balancer.probing.messages import ProbeCode, ProbeInterval, ProbeResult, TargetSpec
from holdfast.balancer.probing.prober import Prober
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.time import Duration, Instant, seconds
from holdfast.testing.fault import fault
from holdfast.testing.real.processes import wait_until
from tests.balancer.probing import backends
from tests.balancer.probing.backends import HERE
from tests.balancer.probing.harness import NOW, PATIENT, ManualProber, manual_prober

TENTH = seconds(0.1)
HOUR = seconds(3_600)


class MovableClock:
    """This machine's clock, and as much more as the test likes."""

    def __init__(self) -> None:
        self.ahead = Duration(0)

    def now(self) -> Instant:
        return NOW() + self.ahead


class Backend:
    """A server whose answers take as long as the test says, on a clock that stands unless it is moved: how busy this
    machine is makes no difference."""

    def __init__(self) -> None:
        self._now = NOW()
        self._may_answer = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._at_once = 0
        self.most_at_once = 0

    def now(self) -> Instant:
        return self._now

    def manners(self, peer: socket.socket) -> None:
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
        self._may_answer.acquire(timeout=30)
        with self._lock:
            self._at_once -= 1  # before the answer: the next probe may come as soon as that is out
        backends.slow(peer, 0.0)

    @contextmanager
    def probed(self) -> Iterator[ManualProber]:
        """Ten times a second, by this prober."""
        with backends.server(self.manners) as port, manual_prober(self.now) as prober:
            prober.assign(web(port, interval=TENTH))
            try:
                yield prober
            finally:
                self._may_answer.release(100)  # whoever still waits for an answer

    def answers_once(self, prober: ManualProber, after: Duration) -> None:
        """Lets time pass until it is probed, and so much more until it answers."""
        prober.turn(0)
        while len(prober.lateness) == len(prober.results):
            self._now += Duration(milliseconds=1)
            prober.turn(0)
        self._now += after
        self._may_answer.release()
        prober.collect(1)


def web(port: int, name: str = "web", **settings: object) -> TargetSpec:
    check = HealthCheck(**{"type": "http", "timeout": PATIENT, "jitter": 0, **settings})  # type: ignore[arg-type]
    return TargetSpec(name, HERE, port, check)


def distances(results: list[ProbeResult]) -> list[Duration]:
    return [later.started - earlier.started for earlier, later in pairwise(results)]


def when_it_ends(_beat: int, finished: int, every: int) -> int:
    """B3 as it was."""
    return finished + every


@fault(
    "B3",
    without="holdfast.balancer.probing.prober:next_slot",
    by=f"{__name__}:when_it_ends",
    sees=(AssertionError, r"distances\(prober.results\) == \[TENTH\] \* 4"),
)
def test_B3_100_ms_stay_100_ms_though_the_backend_takes_30() -> None:
    backend = Backend()
    with backend.probed() as prober:
        for _ in range(5):
            backend.answers_once(prober, after=Duration(milliseconds=30))
        assert all(result.passed for result in prober.results)
        assert distances(prober.results) == [TENTH] * 4


def every_missed_cycle(beat: int, _finished: int, every: int) -> int:
    """B4 as it was."""
    return beat + every


@fault(
    "B4",
    without="holdfast.balancer.probing.prober:next_slot",
    by=f"{__name__}:every_missed_cycle",
    sees=(AssertionError, r"distances\(prober.results\) == \[seconds\(0.5\)\] \* 3 \+ \[TENTH\] \* 3"),
)
def test_B4_a_struggling_backend_gets_one_probe_at_a_time_and_no_flood_afterwards() -> None:
    backend = Backend()
    with backend.probed() as prober:
        for answering in (*[seconds(0.5)] * 3, *[Duration(0)] * 4):
            backend.answers_once(prober, after=answering)
    assert backend.most_at_once == 1
    assert distances(prober.results) == [seconds(0.5)] * 3 + [TENTH] * 3


def test_an_unchanged_target_keeps_its_schedule_and_its_probe() -> None:
    with backends.server(backends.mute) as port, manual_prober() as prober:
        kept = web(port, "kept", interval=HOUR)
        prober.assign(kept)
        prober.until(lambda: bool(prober.lateness), "the first probe starts")
        prober.assign(kept, web(port, "new", interval=Duration(milliseconds=1), timeout=seconds(0.05)))
        prober.collect(3)
        assert {result.target for result in prober.results} == {"new"}
        starts = len(prober.lateness)
        prober.assign(kept)
        for _ in range(10):
            prober.turn()
        assert len(prober.lateness) == starts


def test_a_removed_target_yields_no_more_results() -> None:
    with backends.server(backends.mute) as port, manual_prober() as prober:
        prober.assign(web(port, interval=Duration(milliseconds=1), timeout=seconds(0.2)))
        prober.until(lambda: bool(prober.lateness), "the first probe starts")
        prober.assign()
        deadline = NOW() + seconds(0.4)
        while NOW() < deadline:
            prober.turn()
        assert prober.results == []
        assert prober.prober.targets == 0


def test_a_changed_check_replaces_the_probe_under_way() -> None:
    with backends.server(backends.mute) as mute, manual_prober() as prober:
        prober.assign(web(mute, interval=Duration(milliseconds=1)))
        prober.until(lambda: bool(prober.lateness), "the first probe starts")
        prober.assign(web(mute, type="tcp", interval=Duration(milliseconds=1)))
        assert prober.collect(1)[0].code is ProbeCode.L4OK


def test_a_faster_pace_takes_effect_at_once() -> None:
    with backends.server(backends.slow) as port, manual_prober() as prober:
        prober.assign(
            web(port, interval=HOUR, fast_interval=Duration(milliseconds=50)), intervals={"web": ProbeInterval.FAST}
        )
        prober.collect(2)
        prober.prober.set_intervals({"web": ProbeInterval.NORMAL})
        prober.collect(1)
        for _ in range(10):
            prober.turn()
        assert len(prober.results) == 3
        prober.prober.set_intervals({"web": ProbeInterval.FAST})
        prober.collect(2)


def gone_away(peer: socket.socket) -> None:
    """A server that takes what it gets for a while, and then gives up on a client that does not finish."""
    peer.recv(65_536)
    time.sleep(0.05)


@fault(
    "B14",
    without="holdfast.balancer.probing.schedule:ProberStalls.late",
    returns=False,
    sees=(AssertionError, "not result.failed"),
)
def test_B14_a_failure_during_a_stall_does_not_count() -> None:
    clock, is_away = MovableClock(), threading.Event()

    def manners(peer: socket.socket) -> None:
        is_away.wait(30)
        gone_away(peer)

    with backends.server(manners) as port, manual_prober(clock.now) as prober:
        prober.assign(web(port, interval=HOUR))
        while not prober.lateness:
            prober.prober.turn()
        clock.ahead += seconds(10)
        is_away.set()
        (result,) = prober.collect(1)
    assert not result.passed
    assert not result.failed


class StopsInTheMiddle(MovableClock):
    """A clock that goes on by ten seconds right after somebody has looked at it."""

    is_due = False

    def now(self) -> Instant:
        seen = super().now()
        if self.is_due:
            self.is_due = False
            self.ahead += seconds(10)
        return seen


def test_B14_a_failure_during_a_stall_in_the_middle_of_a_turn_does_not_count() -> None:
    clock, asked, may_go = StopsInTheMiddle(), threading.Event(), threading.Event()

    def manners(peer: socket.socket) -> None:
        peer.recv(65_536)
        asked.set()
        may_go.wait(30)

    with backends.server(manners) as port, manual_prober(clock.now) as prober:
        prober.assign(web(port, interval=HOUR))
        while not asked.is_set():
            prober.prober.turn()
        may_go.set()
        assert select.select([prober.prober], [], [], 30)[0]
        clock.is_due = True
        (result,) = prober.collect(1)
    assert not result.passed
    assert not result.failed


def test_B14_a_backend_that_is_down_counts_while_the_prober_is_in_time() -> None:
    with backends.server(gone_away) as port, manual_prober() as prober:
        prober.assign(web(port, interval=TENTH))
        prober.until(lambda: any(result.failed for result in prober.results), "a failure that counts")


def test_B14_an_answer_that_arrived_during_a_stall_counts() -> None:
    clock, answered = MovableClock(), threading.Event()

    def manners(peer: socket.socket) -> None:
        peer.recv(65_536)
        peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        answered.set()

    with backends.server(manners) as port, manual_prober(clock.now) as prober:
        prober.assign(web(port, interval=HOUR, timeout=seconds(15)))
        while not prober.lateness:
            prober.prober.turn()
        assert answered.wait(30)
        clock.ahead += seconds(60)
        (result,) = prober.collect(1)
    assert result.passed


def over_the_interval(now: int, every: int, within: int, share: float) -> int:
    """B28 as it was."""
    return now + int(every * share)


@fault(
    "B28",
    without="holdfast.balancer.probing.prober:first_start",
    by=f"{__name__}:over_the_interval",
    sees=(AssertionError, r"len\(prober.lateness\) == 20"),
)
def test_B28_first_probes_come_within_the_first_phase_of_the_warm_up() -> None:
    clock = MovableClock()
    with manual_prober(clock.now) as prober:
        targets = [TargetSpec(str(index), HERE, 1, HealthCheck(type="tcp", interval=HOUR)) for index in range(20)]
        prober.assign(*targets, first_within=seconds(5))
        for _ in range(100):
            clock.ahead += TENTH
            prober.turn(0)
        assert len(prober.lateness) == 20


def test_after_a_stall_missed_probes_are_not_made_up_for_and_targets_stay_spread() -> None:
    clock = MovableClock()
    with manual_prober(clock.now) as prober:
        targets = [TargetSpec(str(index), HERE, 1, HealthCheck(type="tcp", interval=HOUR)) for index in range(100)]
        prober.assign(*targets)
        prober.turn()
        clock.ahead += 5 * HOUR
        for _ in range(5):
            prober.turn()
        assert len(prober.lateness) < 10


def test_thousands_of_targets_each_get_their_turn() -> None:
    with backends.server(lambda _peer: None) as port, manual_prober() as prober:
        targets = [
            TargetSpec(
                str(index),
                f"127.0.{index // 250}.{index % 250 + 1}",
                1,
                HealthCheck(type="tcp", interval=seconds(2), timeout=PATIENT),
            )
            for index in range(2_000)
        ]
        prober.assign(*targets, web(port))
        prober.until(lambda: len({result.target for result in prober.results}) == 2_001, "everybody is probed")
    assert {result.code for result in prober.results} <= {ProbeCode.L4CON, ProbeCode.L7RSP}


def test_a_flood_from_one_backend_does_not_keep_the_others_waiting() -> None:
    with backends.server(backends.flood) as loud, backends.server(backends.slow) as quiet, manual_prober() as prober:
        prober.assign(web(loud, "loud", interval=Duration(milliseconds=1)), web(quiet, "quiet", interval=TENTH))
        prober.until(lambda: sum(result.target == "quiet" for result in prober.results) >= 10, "the quiet one is heard")
    assert all(result.passed for result in prober.results if result.target == "quiet")
    assert {result.code for result in prober.results if result.target == "loud"} == {ProbeCode.L7RSP}


def test_only_passes_that_change_nothing_are_counted_instead_of_delivered() -> None:
    """The pass after a failure is delivered whatever the interval: else failures far apart would be in a row."""
    results: list[ProbeResult] = []
    counted: list[str] = []
    prober = Prober(
        lambda: NOW().ns,
        lambda: 0.0,
        results.append,
        lambda _: None,
        lambda target, _code, _late: counted.append(target.id),
    )

    def turned(until: Callable[[], bool]) -> None:
        wait_until(lambda: bool(prober.turn()) and until(), "it has come")

    check = HealthCheck(type="tcp", interval=Duration(milliseconds=5), timeout=PATIENT)
    try:
        with socket.create_server((HERE, 0), backlog=512) as listening:
            port = listening.getsockname()[1]
            prober.assign([TargetSpec("web", HERE, port, check)], {"web": ProbeInterval.FAST})
            turned(lambda: len(results) == 3)
            assert not counted, "undecided: every pass counts"
            prober.set_intervals({"web": ProbeInterval.NORMAL})
            turned(lambda: len(counted) == 3)
            delivered = len(results)
        turned(lambda: len(results) > delivered)
        assert results[-1].code is ProbeCode.L4CON
        with socket.create_server((HERE, port), backlog=512):
            known = len(counted)
            turned(lambda: results[-1].passed)
            assert len(counted) == known, "the pass after a failure is delivered"
            turned(lambda: len(counted) > known)
    finally:
        prober.close()


@pytest.mark.parametrize("address", [HERE, f"::ffff:{HERE}"])
def test_an_address_outside_the_probe_networks_gets_no_packet(address: str) -> None:
    with socket.create_server((HERE, 0)) as listening, manual_prober(networks=["192.0.2.0/24", "::/0"]) as prober:
        port = listening.getsockname()[1]
        every = HealthCheck(type="tcp", interval=Duration(milliseconds=5), timeout=PATIENT)
        prober.assign(TargetSpec("metadata", address, port, every))
        results = prober.collect(5)
        assert {(result.passed, result.failed, result.code) for result in results} == {
            (False, False, ProbeCode.SOCKERR)
        }
        assert "in no network of balancer.probe_networks" in results[0].detail
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()


def test_an_address_inside_the_probe_networks_is_probed() -> None:
    with socket.create_server((HERE, 0)) as listening, manual_prober(networks=["192.0.2.0/24", f"{HERE}/32"]) as prober:
        check = HealthCheck(type="tcp", interval=Duration(milliseconds=5), timeout=PATIENT)
        prober.assign(TargetSpec("web", HERE, listening.getsockname()[1], check))
        assert prober.collect(1)[0].passed
