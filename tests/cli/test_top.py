"""`holdfast top`: what each process uses, from /proc."""

from __future__ import annotations

import os
import time
from pathlib import Path

from holdfast.cli.status.view import StatusView
from holdfast.cli.top import Usage, measured, processes, usage_of
from tests.cli.status.test_page import daemon, worker


def test_a_process_is_read_whatever_its_name_is() -> None:
    fields = "S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 7 0 100 1000000 512 18446744073709551615"
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert usage_of(f"42 (a) name (of 2)) {fields}") == Usage(300 / ticks, 512 * page, 7)


def test_this_process_uses_what_the_kernel_says() -> None:
    before = usage_of(Path("/proc/self/stat").read_text())
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    after = usage_of(Path("/proc/self/stat").read_text())
    assert after.cpu_s - before.cpu_s >= 0.05
    assert after.memory > 2**20
    assert after.threads >= 1


def test_the_busiest_process_is_first_and_one_that_has_exited_is_left_out() -> None:
    view = StatusView([daemon(worker("peers", pid=11, backlog=3), worker("reporter", pid=12), worker("old", pid=None))])
    assert processes(view) == {"agent/supervisor": 4_711, "agent/peers": 11, "agent/reporter": 12}
    before = {4_711: Usage(1.0, 100, 2), 11: Usage(5.0, 200, 3), 12: Usage(7.0, 300, 1)}
    after = {4_711: Usage(1.0, 100, 2), 11: Usage(6.0, 250, 3), 12: None}
    rows = measured(view, before, after, passed=2.0)
    assert [(one["worker"], one["cpu_percent"], one["memory_bytes"]) for one in rows] == [
        ("agent/peers", 50.0, 250),
        ("agent/supervisor", 0.0, 100),
    ]
    assert (rows[0]["backlog"], rows[1]["backlog"]) == (3, None)
