"""Certainly dead predecessors: in every other case the lease decides (C12)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from holdfast.model.control.leader import Leader
from holdfast.server.election.predecessor import certainly_dead, is_gone

ME = Leader("b", "host", 8, "boot-1", "pid:1")


def gone(_pid: int) -> bool:
    return True


def test_a_process_of_this_boot_and_namespace_that_is_gone_is_dead() -> None:
    assert certainly_dead(Leader("a", "host", 7, "boot-1", "pid:1"), ME, gone)


def test_one_that_is_there_is_not() -> None:
    assert not certainly_dead(Leader("a", "host", 7, "boot-1", "pid:1"), ME, lambda _pid: False)


@pytest.mark.parametrize(
    ("boot", "namespace"), [("boot-1", "pid:2"), ("boot-2", "pid:1"), ("", ""), ("boot-1", ""), ("", "pid:1")]
)
def test_a_pid_from_elsewhere_proves_nothing(boot: str, namespace: str) -> None:
    assert not certainly_dead(Leader("a", "host", 7, boot, namespace), ME, gone)


def test_saying_nothing_is_not_the_same_as_saying_the_same_nothing() -> None:
    assert not certainly_dead(Leader("a", "host", 7), Leader("b", "host", 8), gone)


@pytest.mark.parametrize("pid", [0, 2**31, 2**63 - 1])
def test_a_number_that_no_process_has_proves_nothing(pid: int) -> None:
    assert not certainly_dead(Leader("a", "host", pid, "boot-1", "pid:1"), ME, is_gone)


def test_a_process_that_ended_is_gone_and_one_that_runs_is_not() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as process:
        assert not is_gone(process.pid)
    assert is_gone(process.pid)
