"""Each row of the pulse table on real processes: the sign, the action, and the sentence about it.

Rows of the fault matrix have a daemon of their own, because they also run without their protection. All other
misbehaviour happens at the same time in one daemon (`faulty`), and must not affect its other workers.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.fault import fault
from tests.runtime.daemon.harness import Daemon, Named, alive, daemon


def patience(protection: str) -> float:
    """Without its protection a scenario waits in vain, so it waits briefly."""
    return 30.0 if protection == "held" else 3.0


def observe(seconds: float) -> None:
    """Lets that much time pass in which something must not happen."""
    time.sleep(seconds)


@fault(
    "C3",
    without="holdfast.runtime.daemon.pulse:has_exited",
    returns=False,
    sees=(AssertionError, r"self.until\(lambda: self.worker\(name\).pid not in \(None, pid\)"),
)
def test_C3_a_worker_that_died_is_started_again(tmp_path: Path, protection: str) -> None:
    with daemon(tmp_path, ["steady"]) as one:
        pid = one.pid_of("steady")
        os.kill(pid, signal.SIGKILL)
        one.until_replaced("steady", pid, patience(protection))
        one.until_back("steady")
        told = one.decided("steady")
        assert [outcome for outcome, _ in told] == ["restart", "back"]
        assert told[0][1].startswith("steady exited (killed by signal 9): restarting in 0.1 s")
        assert told[1][1].startswith("steady recovered")
        assert one.said(told[0][1])


@fault(
    "C4",
    without="holdfast.runtime.daemon.pulse:is_stalled",
    returns=False,
    sees=(AssertionError, r"self.until\(lambda: self.worker\(name\).pid not in \(None, pid\)"),
)
def test_C4_a_worker_that_does_not_consume_its_queue_is_started_again(tmp_path: Path, protection: str) -> None:
    with daemon(tmp_path, ["steady"], bounds={"stalled_after": 1.0}) as one:
        pid = one.pid_of("steady")
        one.order("steady", "stall")
        one.until_replaced("steady", pid, patience(protection))
        one.until_back("steady")
        told = one.decided("steady")
        assert [outcome for outcome, _ in told] == ["ending", "restart", "back"]
        assert told[0][1].startswith("steady stalled (5 waiting, no attempt finished for ")
        assert one.said(told[0][1])


@fault(
    "C5",
    without="holdfast.runtime.daemon.pulse:is_completed",
    returns=False,
    sees=(AssertionError, r'one.decided\("finishing"\) == \[\("completed"'),
)
def test_C5_a_finished_one_shot_job_is_left_alone(tmp_path: Path) -> None:
    with daemon(tmp_path, ["finishing"]) as one:
        one.until(lambda: one.decided("finishing") != [], "its end is judged")
        observe(0.7)
        assert one.decided("finishing") == [("completed", "finishing completed its job")]
        shown = one.worker("finishing")
        assert (shown.phase, shown.state, shown.restarts) == ("completed", "completed", 0)
        assert (tmp_path / "state" / "finished").read_text() == "done\n"


@fault(
    "C25",
    without="holdfast.runtime.daemon.pulse:last_sign_of_consuming",
    by="tests.runtime.daemon.jobs:last_success",
    sees=(AssertionError, r"\(shown.pid, shown.restarts, shown.state\) == \(pid, 0"),
)
def test_C25_a_worker_that_waits_for_its_database_is_left_alone(tmp_path: Path) -> None:
    # Its attempts are on the board with the next heartbeat: the bound must leave room for a late one.
    with daemon(tmp_path, ["waiting"], bounds={"stalled_after": 3.5}) as one:
        pid = one.pid_of("waiting")
        observe(4.5)
        shown = one.worker("waiting")
        assert (shown.pid, shown.restarts, shown.state) == (pid, 0, "waiting: database")
        assert (shown.verdict, shown.backlog) == ("waiting", 3)
        assert one.decided("waiting") == []


@fault(
    "C26",
    without="holdfast.runtime.daemon.pulse:was_suspended",
    returns=False,
    sees=(AssertionError, r'one.decided\("steady"\) == \[\]'),
)
def test_C26_after_a_pause_of_the_machine_no_worker_is_killed(tmp_path: Path) -> None:
    """All heartbeats are old at once, and the supervisor is the first to run again."""
    with daemon(tmp_path, ["steady"], bounds={"heartbeat_after": 3.5, "grace_after": 3.0}) as one:
        pid = one.pid_of("steady")
        pause_all(one, 3.8)
        os.kill(one.pid, signal.SIGCONT)
        observe(0.6)
        assert one.decided("steady") == []
        os.kill(pid, signal.SIGCONT)
        one.until(lambda: (one.worker("steady").pulse_s or 0.0) < 0.5, "its heart beats")
        observe(0.6)
        assert (one.pid_of("steady"), one.worker("steady").restarts) == (pid, 0)
        assert one.said("supervisor was suspended; ages count from now")


@fault(
    "C26", without="holdfast.runtime.daemon.pulse:was_suspended", returns=False, sees=(AssertionError, r"alive\(pid\)")
)
def test_C26_workers_that_run_again_first_do_not_give_up_their_supervisor(tmp_path: Path) -> None:
    with daemon(tmp_path, ["steady"], bounds={"supervisor_silent_after": 3.5, "grace_after": 3.0}) as one:
        pid = one.pid_of("steady")
        pause_all(one, 3.8)
        os.kill(pid, signal.SIGCONT)
        observe(0.8)
        assert alive(pid)
        os.kill(one.pid, signal.SIGCONT)
        one.until(lambda: one.said("supervisor was suspended"), "the supervisor is back")
        observe(0.6)
        assert (one.pid_of("steady"), one.worker("steady").restarts) == (pid, 0)


def pause_all(one: Daemon, seconds: float) -> None:
    """As a hypervisor does it. The supervisor first, or it would notice."""
    for pid in (one.pid, *(worker.pid for worker in one.workers())):
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    observe(seconds)


# All at once


ORDERS = {
    "exiting": "exit",
    "raising": "crash",
    "careless": "lose a task",
    "circling": "loop",
    "neglecting": "neglect",
    "overdue": "overdue",
}
WORKERS: list[Named] = [
    *((name, "steady") for name in ORDERS),
    ("frozen", "steady"),
    ("healthy", "steady"),
    "crashing",
    "hanging_once",
]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon in which everything went wrong at once, some time ago."""
    # One of them crashes all the time, which is work for the machine: the others must not hang because of that.
    bounds = {"heartbeat_after": 5.0, "stalled_after": 5.0, "term_grace": 3.0}
    with daemon(tmp_path_factory.mktemp("faulty"), WORKERS, bounds=bounds) as one:
        one.pids = {worker.name: worker.pid for worker in one.workers()}
        one.known = {worker.name: len(one.decided(worker.name)) for worker in one.workers()}
        os.kill(one.pid_of("frozen"), signal.SIGSTOP)
        for name, order in ORDERS.items():
            one.order(name, order)
        for name in {*ORDERS, "frozen"} - {"overdue"}:
            one.until_back(name)
        one.until(lambda: one.worker("overdue").verdict == "overdue", "overdue is seen")
        one.until(lambda: one.worker("crashing").crash_looping, "crashing is marked")
        # It hangs before its first beat, for which it has half a minute from its start, or from when we were away.
        one.until(lambda: one.worker("hanging_once").restarts > 0, "hanging_once is started again", within=120)
        (one.paths.state / "finish").touch()
        one.until(lambda: one.worker("hanging_once").phase == "completed", "hanging_once completes")
        yield one


def told_of(faulty: Daemon, name: str) -> list[tuple[str, str]]:
    """What was decided on a worker since it ran: to start all of them takes a busy machine longer than one may take."""
    return faulty.decided(name)[faulty.known[name] :]


@pytest.mark.parametrize(
    ("name", "evidence"),
    [("exiting", "exit code 3"), ("raising", "exit code 1"), ("careless", "exit code 70")],
)
def test_whatever_ends_a_worker_it_is_started_again(faulty: Daemon, name: str, evidence: str) -> None:
    told = told_of(faulty, name)
    assert [outcome for outcome, _ in told] == ["restart", "back"]
    assert told[0][1].startswith(f"{name} exited ({evidence}): restarting in")
    assert faulty.said(told[0][1])


def test_a_task_that_dies_unawaited_is_logged_with_its_error(faulty: Daemon) -> None:
    assert faulty.said("task failed; the process ends")


@pytest.mark.parametrize("name", ["circling", "frozen"])
def test_a_worker_that_hangs_is_ended_killed_and_started_again(faulty: Daemon, name: str) -> None:
    told = told_of(faulty, name)
    assert [outcome for outcome, _ in told] == ["ending", "killed", "restart", "back"]
    assert told[0][1].startswith(f"{name} hung (no heartbeat for ")
    assert told[1][1] == f"{name} did not end within 3.0 s: sending SIGKILL"
    assert told[3][1].endswith(" after it hung")
    assert all(faulty.said(sentence) for _, sentence in told)
    assert not alive(faulty.pids[name] or 0)


def test_a_worker_that_neglects_its_duty_is_started_again(faulty: Daemon) -> None:
    told = told_of(faulty, "neglecting")
    assert [outcome for outcome, _ in told] == ["ending", "restart", "back"]
    assert told[0][1].startswith("neglecting missed its deadline (it was due ")


def test_an_overdue_audit_is_reported_once_and_nothing_else_is_done(faulty: Daemon) -> None:
    ((outcome, sentence),) = told_of(faulty, "overdue")
    assert outcome == "resync_overdue"
    assert sentence.startswith("overdue is overdue with its audit (it was due ")
    assert faulty.pid_of("overdue") == faulty.pids["overdue"]
    assert 'holdfast_resync_overdue{worker="overdue"} 1.0' in faulty.ask("metrics").result


def test_a_crash_loop_is_marked_once_and_the_worker_still_restarted(faulty: Daemon) -> None:
    told = faulty.decided("crashing")
    assert told.count(("crash-looping", "crashing is crash-looping; the other workers are not affected")) == 1
    before = faulty.worker("crashing").restarts
    faulty.until(lambda: faulty.worker("crashing").restarts > before, "it is started again")


def test_a_one_shot_job_that_had_to_be_ended_got_another_try(faulty: Daemon) -> None:
    told = [outcome for outcome, _ in faulty.decided("hanging_once")]
    assert (told[0], "restart" in told, told[-1]) == ("ending", True, "completed")


def test_a_healthy_worker_among_all_this_is_left_alone(faulty: Daemon) -> None:
    assert (faulty.pid_of("healthy"), told_of(faulty, "healthy")) == (faulty.pids["healthy"], [])


# The supervisor itself


def test_workers_are_gone_at_once_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    with daemon(tmp_path, ["steady", ("other", "steady"), "dragging"]) as one:
        pids = [worker.pid for worker in one.workers()]
        one.send(signal.SIGKILL)
        one.until(lambda: not any(alive(pid) for pid in pids if pid), "the workers are gone", within=5.0)


def test_workers_end_when_their_supervisor_hangs_and_come_back_with_it(tmp_path: Path) -> None:
    with daemon(tmp_path, ["steady"], bounds={"supervisor_silent_after": 1.5}) as one:
        pid = one.pid_of("steady")
        one.send(signal.SIGSTOP)
        one.until(lambda: one.said("no heartbeat from the supervisor", f"supervisor_pid={one.pid}"), "the worker ends")
        one.until(lambda: not alive(pid), "the worker is gone")
        one.send(signal.SIGCONT)
        one.until_replaced("steady", pid)
        assert one.said("steady exited (exit code 75)")


def test_a_worker_that_cannot_be_started_is_tried_again_until_it_can(tmp_path: Path) -> None:
    """No memory, no pids, no interpreter: the supervisor stays, says so, and backs off."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    with daemon(tmp_path, ["steady"], python=str(python)) as one:
        pid = one.pid_of("steady")
        python.rename(tmp_path / "hidden")
        os.kill(pid, signal.SIGKILL)
        one.until(lambda: one.said("steady exited (it could not be started): restarting in"), "it is told")
        (tmp_path / "hidden").rename(python)
        one.until_replaced("steady", pid)
