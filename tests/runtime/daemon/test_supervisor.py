"""A daemon as a whole: stopping, reloading, one at a time, and answering while its workers do not."""

from __future__ import annotations

import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.config.root import restore
from holdfast.runtime.daemon.board import Board
from tests.runtime.daemon.harness import ROOT, Daemon, Named, alive, daemon
from tests.runtime.test_metrics import listening, samples, value


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that nothing happens to, in a deep folder with spaces in its name."""
    folder = tmp_path_factory.mktemp("idle") / "a folder with spaces" / "/".join(["and quite deep below"] * 6)
    folder.mkdir(parents=True)
    with daemon(folder, ["finishing", "steady", ("frozen", "steady")]) as one:
        one.until(lambda: one.worker("finishing").phase == "completed", "the one-shot job is done")
        yield one


def test_sigterm_stops_the_workers_in_reverse_order_each_with_bounded_patience(tmp_path: Path) -> None:
    workers: list[Named] = [("a", "steady"), "dragging", ("b", "steady"), "unending", ("c", "steady")]
    # What drags is cancelled after 0.6 of it, and has the rest to end in before it would be killed.
    with daemon(tmp_path, workers, bounds={"term_grace": 5.0}) as one:
        pids = [worker.pid for worker in one.workers()]
        one.send(signal.SIGTERM)
        assert one.wait() == 0
        assert one.ends() == [
            "c stops",
            "killing worker why=still running after 5.0 s worker=unending",
            "b stops",
            "job cancelled; it resumes at the next start after_s=3.0 worker=dragging",
            "a stops",
        ]
        assert not any(alive(pid) for pid in pids if pid)
        assert not one.paths.socket().exists()


def test_ctrl_c_reaches_everybody_and_only_the_supervisor_decides(tmp_path: Path) -> None:
    with daemon(tmp_path, [("a", "steady"), ("b", "steady")]) as one:
        one.send_group(signal.SIGINT)
        assert one.wait() == 0
        assert one.ends() == ["b stops", "a stops"]
        assert not one.said("Traceback")


def test_ctrl_c_in_the_middle_of_the_start_leaves_no_traceback(tmp_path: Path) -> None:
    one = Daemon(tmp_path, [("a", "steady"), ("b", "steady")])
    one.start()
    try:
        one.until(one.paths.board.exists, "it starts")
        one.until(one.paths.socket().exists, "it listens to signals")
        time.sleep(0.05)
        one.send_group(signal.SIGINT)
        assert one.wait() == 0
        assert not one.said("Traceback")
    finally:
        one.end()


def test_a_second_ctrl_c_waits_for_no_worker(tmp_path: Path) -> None:
    with daemon(tmp_path, ["steady", "unending", "dragging"], bounds={"term_grace": 300.0}) as one:
        pids = [worker.pid for worker in one.workers()]
        one.send_group(signal.SIGINT)
        one.until(lambda: one.said("stopping role=lab"), "it stops")
        one.send_group(signal.SIGINT)
        assert one.wait() == 0
        assert one.said("killing worker", "dragging", "second stop signal")
        assert not any(alive(pid) for pid in pids if pid)


def test_a_second_daemon_in_the_same_folder_is_refused_with_one_sentence(idle: Daemon) -> None:
    pid = idle.pid_of("steady")
    second = Daemon(idle.folder, ["steady"])
    second.start()
    try:
        assert second.wait() == 1
    finally:
        second.end()
    (refusal,) = [line for line in idle.log() if "is already running" in line]
    assert refusal == (
        f"Error: holdfast lab is already running (pid {idle.pid}) in {idle.folder}/run: stop it, or set another "
        "paths.runtime"
    )
    assert idle.pid_of("steady") == pid
    assert idle.ask("status").error == ""


def test_the_lock_of_a_killed_daemon_is_free(tmp_path: Path) -> None:
    with daemon(tmp_path, ["steady"]) as one:
        one.send(signal.SIGKILL)
        one.wait()
    with daemon(tmp_path, ["steady"]) as two:
        assert two.ask("status").error == ""


def test_a_good_reload_reaches_the_workers_without_a_restart(tmp_path: Path) -> None:
    with daemon(tmp_path, ["telling"]) as one:
        pid = one.pid_of("telling")
        one.write_plan(level="warning")
        one.send(signal.SIGHUP)
        one.until(lambda: one.said("telling changed to level warning"), "the worker has the new configuration")
        assert one.pid_of("telling") == pid


def test_a_bad_reload_leaves_the_running_configuration_also_for_a_worker_that_restarts_later(tmp_path: Path) -> None:
    with daemon(tmp_path, ["telling"]) as one:
        pid = one.pid_of("telling")
        one.until(lambda: one.said("telling runs with level info"), "its job has begun")
        one.write_plan(level="debug", broken="there is no level 'loud'")
        one.send(signal.SIGHUP)
        told = "configuration rejected; the running one stays in force"
        one.until(lambda: one.said(told), "it is told")
        os.kill(pid, signal.SIGKILL)
        one.until_replaced("telling", pid)
        one.until(lambda: one.log().count("telling runs with level info") == 2, "it runs as before")
        answer = one.ask("reload")
        rejected = "the new configuration was rejected, and the running one stays in force"
        refused = f"{tmp_path}/plan.json:1: there is no level 'loud'"
        assert answer.error == f"{rejected}:\n{refused}"
        assert one.ask("status").result["config_refused"] == refused
        assert "holdfast_config_refused 1.0" in one.ask("metrics").result
        del one.plan["broken"]
        one.write_plan(level="debug")
        assert one.ask("reload").error == ""
        assert one.ask("status").result["config_refused"] == ""


def test_a_reload_answers_which_fields_are_applied_and_which_need_a_restart(tmp_path: Path) -> None:
    with daemon(tmp_path, ["telling"]) as one:
        one.write_plan(level="warning", state=str(tmp_path / "elsewhere"))
        answer = one.ask("reload").result
        assert answer["applied"] == [{"path": "log.level", "old": "info", "new": "warning"}]
        assert [change["path"] for change in answer["needs_restart"]] == ["paths.state"]
        assert answer["unconfirmed"] == []
        assert one.said("telling changed to level warning")
        assert restore(one.paths.config.read_bytes()).paths.state == str(tmp_path / "state")


def test_a_reload_names_the_workers_that_have_not_confirmed_it(tmp_path: Path) -> None:
    with daemon(tmp_path, ["telling", ("frozen", "steady")]) as one:
        os.kill(one.pid_of("frozen"), signal.SIGSTOP)
        try:
            one.write_plan(level="warning")
            assert one.ask("reload").result["unconfirmed"] == ["frozen"]
        finally:
            os.kill(one.pid_of("frozen"), signal.SIGCONT)


def test_a_reload_reaches_a_worker_that_is_just_starting(tmp_path: Path) -> None:
    """It has read the old configuration and shows no pulse yet, so nobody could signal it."""
    late = tmp_path / "late_job.py"
    late.write_text(
        "import time\nfrom pathlib import Path\n"
        f"Path({str(tmp_path / 'begun')!r}).touch()\n"
        f"while not Path({str(tmp_path / 'go')!r}).exists():\n    time.sleep(0.01)\n"
        "from tests.runtime.daemon.jobs import telling\n"
    )
    one = Daemon(tmp_path, [("telling", "late_job:telling")])
    one.start(PYTHONPATH=os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT), str(tmp_path)])))
    try:
        one.until((tmp_path / "begun").exists, "the worker has read its configuration")
        one.write_plan(level="warning")
        one.send(signal.SIGHUP)
        one.until(lambda: '"warning"' in one.paths.config.read_text(), "the reload is done")
        (tmp_path / "go").touch()
        one.until(lambda: one.said("telling changed to level warning"), "the worker has it")
    finally:
        one.end()


def test_status_and_metrics_do_not_wait_for_a_frozen_worker(idle: Daemon) -> None:
    frozen = idle.pid_of("frozen")
    os.kill(frozen, signal.SIGSTOP)
    try:
        status = idle.ask("status")
        assert [worker["name"] for worker in status.result["workers"]] == ["finishing", "steady", "frozen"]
        idle.until(lambda: is_up(idle, "steady"), "who is not frozen answers")
        assert not is_up(idle, "frozen")
        assert "no answer from" in idle.ask("tell", "frozen", do="metrics").error
    finally:
        os.kill(frozen, signal.SIGCONT)


def is_up(one: Daemon, worker: str) -> bool:
    return value(one.ask("metrics").result, "holdfast_worker_up", worker=worker) == 1


def test_a_one_shot_job_that_has_finished_is_not_down(idle: Daemon) -> None:
    text = idle.ask("metrics").result
    assert {one.labels["worker"] for one in samples(text) if one.name == "holdfast_worker_up"} == {"steady", "frozen"}


def test_the_desk_declines_what_makes_no_sense(idle: Daemon) -> None:
    told = idle.ask("tell", "nobody", do="x").error
    assert told == "there is no worker 'nobody'; there are: finishing, steady, frozen"
    assert idle.ask("tell", "steady").error == "the command for the worker is missing"
    # It never says that it has tried anything: as far as anybody knows it is still starting.
    idle.until(lambda: "dance is not available yet" in idle.ask("tell", "steady", do="dance").error, "steady answers")
    assert "invalid request" in idle.ask("tell", "steady", do="metrics", args=[1]).error
    assert idle.ask("history", key=7).error.startswith("history takes a key")
    assert idle.ask("history", last=-1).error.startswith("history takes a key")


def test_sockets_and_folders_are_not_for_everybody(idle: Daemon) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in idle.paths.runtime.iterdir()}
    assert (modes["lab.sock"], modes["lab.steady.sock"]) == (0o660, 0o600)  # the supervisor forwards, and checks
    assert all(mode & 0o007 == 0 for mode in modes.values())
    assert stat.S_IMODE(idle.paths.runtime.stat().st_mode) == 0o750


def test_a_runtime_folder_may_lie_deeper_than_a_socket_address_can_tell(idle: Daemon) -> None:
    assert len(str(idle.paths.socket())) > 107
    idle.until(lambda: is_up(idle, "steady"), "it answers there")


def test_the_service_manager_is_notified_of_start_watchdog_reload_and_stop(tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as manager:
        one = Daemon(tmp_path, ["steady"])
        one.start(NOTIFY_SOCKET=str(tmp_path / "notify"))
        try:
            heard = hear(manager, "READY=1")
            assert set(heard[:-1]) <= {"WATCHDOG=1"}
            assert hear(manager, "WATCHDOG=1")
            one.send(signal.SIGHUP)
            assert hear(manager, "RELOADING=1")[-1].startswith("RELOADING=1\nMONOTONIC_USEC=")
            hear(manager, "READY=1")
            one.write_plan(broken="nonsense")
            one.send(signal.SIGHUP)
            hear(manager, "RELOADING=1")
            assert "the running one stays in force" in hear(manager, "READY=1")[-1]
            one.send(signal.SIGTERM)
            hear(manager, "STOPPING=1")
            assert one.wait() == 0
        finally:
            one.end()


def hear(manager: socket.socket, word: str) -> list[str]:
    """All messages up to the first that begins with the word."""
    manager.settimeout(30)
    heard = [manager.recv(4_096).decode()]
    while not heard[-1].startswith(word):
        heard.append(manager.recv(4_096).decode())
    return heard


def test_the_board_can_be_read_after_the_supervisor_is_gone(tmp_path: Path) -> None:
    with daemon(tmp_path, ["steady"]) as one:
        one.send(signal.SIGKILL)
        one.wait()
        assert Board.open(one.paths.board, read_only=True).cells() == ["supervisor", "steady", "steady/record"]
        assert one.worker("steady").verdict in ("healthy", "starting")
