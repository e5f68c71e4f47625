"""Metrics of all workers as one exposition, and the messages to systemd."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import structlog.testing
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from holdfast.model.base.time import Instant
from holdfast.runtime.daemon.commands import gather, of_report
from holdfast.runtime.daemon.report import DaemonReport, WorkerReport
from holdfast.runtime.daemon.sd_notify import ServiceManager
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.store.contact import StoreContact, WatchRestart


def samples(text: str) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def value(text: str, name: str, **labels: str) -> float:
    (found,) = [one.value for one in samples(text) if one.name == name and one.labels == labels]
    return found


def worker(backlog: int) -> str:
    metrics = WorkerMetrics()
    metrics.backlog.set(backlog)
    metrics.writes.labels(op="delete", outcome="applied").inc(3)
    metrics.held({("brake", "too_many"): 7})
    return metrics.text()


def test_every_sample_gets_the_label_of_its_worker() -> None:
    text = gather({"routes": worker(4), "peers": worker(5)})
    assert value(text, "holdfast_backlog", worker="routes") == 4
    assert value(text, "holdfast_backlog", worker="peers") == 5
    assert value(text, "holdfast_changes_total", op="delete", outcome="applied", worker="peers") == 3
    assert value(text, "holdfast_gate_closed", gate="brake", reason="too_many", worker="routes") == 7
    assert all("worker" in one.labels for one in samples(text))


def test_each_family_is_declared_once() -> None:
    lines = gather({"routes": worker(4), "peers": worker(5)}).splitlines()
    types = [line for line in lines if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert "# TYPE holdfast_changes_total counter" in types


@pytest.mark.parametrize("answer", [None, "rubbish {{{ 1\n", "holdfast_backlog not_a_number\n"])
def test_a_worker_that_does_not_answer_sensibly_costs_only_its_own_samples(answer: str | None) -> None:
    text = gather({"routes": worker(4), "peers": answer})
    assert value(text, "holdfast_worker_up", worker="peers") == 0
    assert value(text, "holdfast_worker_up", worker="routes") == 1
    assert {one.labels["worker"] for one in samples(text) if one.name == "holdfast_backlog"} == {"routes"}


def test_an_exposition_without_any_worker_is_still_one() -> None:
    assert samples(gather({})) == []


def report(
    name: str,
    *,
    verdict: str = "healthy",
    restarts: int = 0,
    crash_looping: bool = False,
    waiting_s: float | None = None,
) -> WorkerReport:
    return WorkerReport(name, 7, "running", verdict, "ok", 0.1, 0, 0.0, restarts, crash_looping, waiting_s=waiting_s)


def test_what_the_supervisor_knows_is_reported_without_asking_the_workers() -> None:
    told = [report("routes", verdict="overdue", waiting_s=400.5), report("peers", restarts=6, crash_looping=True)]
    told[1] = msgspec.structs.replace(told[1], restart_reasons={"exited": 4, "hung": 2})
    text = of_report(DaemonReport("agent", "1.2.3", 1, 0.1, told)) + gather({"routes": worker(1), "peers": None})
    assert value(text, "holdfast_resync_overdue", worker="routes") == 1
    assert value(text, "holdfast_resync_overdue", worker="peers") == 0
    assert value(text, "holdfast_worker_waiting_seconds", worker="routes") == 400.5
    assert value(text, "holdfast_worker_waiting_seconds", worker="peers") == 0
    assert value(text, "holdfast_worker_restarts_total", worker="peers", reason="exited") == 4
    assert value(text, "holdfast_worker_restarts_total", worker="peers", reason="hung") == 2
    assert value(text, "holdfast_worker_restarts_total", worker="routes", reason="hung") == 0
    assert value(text, "holdfast_worker_crash_looping", worker="peers") == 1
    assert value(text, "holdfast_config_refused") == 0


def test_the_time_since_the_store_answered_is_that_of_the_scrape() -> None:
    metrics, contact, now = WorkerMetrics(), StoreContact(Instant(10**10)), [Instant(12 * 10**9)]
    metrics.follow(contact, lambda: now[0])
    contact.restarts[WatchRestart.COMPACTED] += 1
    assert value(metrics.text(), "holdfast_store_last_contact_seconds") == 2
    now[0] = Instant(25 * 10**9)
    assert value(metrics.text(), "holdfast_store_last_contact_seconds") == 15
    contact.last = now[0]
    assert value(metrics.text(), "holdfast_store_last_contact_seconds") == 0
    assert value(metrics.text(), "holdfast_watch_restarts_total", reason="compacted") == 1
    assert value(metrics.text(), "holdfast_watch_restarts_total", reason="interrupted") == 0


# sd_notify


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:] if address.startswith("@") else address)
        manager.settimeout(10)
        yield manager


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_receives_every_notice_on_a_real_socket(tmp_path: Path, abstract: bool) -> None:
    address = f"@holdfast-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with listening(address) as manager:
        notify = ServiceManager({"NOTIFY_SOCKET": address})
        notify.ready("running")
        notify.alive()
        notify.reloading()
        notify.stopping()
        notify.close()
        notify.ready("said to nobody")
        heard = [manager.recv(4_096).decode() for _ in range(4)]
    assert heard[0] == "READY=1\nSTATUS=running"
    assert heard[1] == "WATCHDOG=1"
    assert heard[2].startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert heard[3:] == ["STOPPING=1"]


def test_without_a_service_manager_nothing_is_sent() -> None:
    with structlog.testing.capture_logs() as told:
        ServiceManager({}).ready("running")
    assert told == []


def test_a_service_manager_that_is_gone_is_mentioned_once_until_it_is_back(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    notify = ServiceManager({"NOTIFY_SOCKET": address})
    with structlog.testing.capture_logs() as told:
        for _ in range(5):
            notify.alive()
        with listening(address):
            notify.alive()
        notify.alive()
    notify.close()
    assert len(told) == 2
