"""A process without a pulse counts as starting as long as it uses the CPU."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from holdfast.model.base.time import NEVER, Instant
from holdfast.runtime.daemon import supervisor
from holdfast.runtime.daemon.process import cpu_s
from holdfast.runtime.daemon.supervisor import SupervisedWorker
from holdfast.runtime.daemon.worker import Spec

WITHIN = 60.0
FIRST, SECOND, THIRD, FOURTH = map(Instant, (1, 2, 3, 4))


@pytest.fixture
def spinning() -> Iterator[SupervisedWorker]:
    """A worker whose process uses the CPU and writes no pulse."""
    nothing: Any = None
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield SupervisedWorker(Spec("spinning", "nowhere:nothing"), nothing, nothing, process=process)
    process.kill()
    process.wait()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def has_moved(charge: SupervisedWorker, now: Instant) -> bool:
    charge.note_cpu_use(now)
    return charge.moved == now


def pid(charge: SupervisedWorker) -> int:
    assert charge.process is not None
    return charge.process.pid


def test_it_gets_on_while_it_uses_the_cpu_and_not_while_it_is_frozen(spinning: SupervisedWorker) -> None:
    until(lambda: has_moved(spinning, FIRST))
    until(lambda: has_moved(spinning, SECOND))
    assert spinning.process is not None
    spinning.process.send_signal(signal.SIGSTOP)
    until(lambda: "\nState:\tT" in Path(f"/proc/{pid(spinning)}/status").read_text())
    spinning.note_cpu_use(THIRD)
    assert not has_moved(spinning, FOURTH)


def test_who_uses_more_cpu_than_any_start_needs_does_not_get_on(spinning: SupervisedWorker) -> None:
    with patch.object(supervisor, "START_CPU_S", 0.05):
        until(lambda: cpu_s(pid(spinning)) > 0.05)
        assert not has_moved(spinning, FIRST)
    assert spinning.moved is NEVER


def test_one_that_is_gone_uses_nothing(spinning: SupervisedWorker) -> None:
    assert spinning.process is not None
    spinning.process.kill()
    spinning.process.wait()
    assert cpu_s(pid(spinning)) == 0
    assert not has_moved(spinning, FIRST)
