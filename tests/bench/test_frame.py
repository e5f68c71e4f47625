"""The command around the benchmarks: what it prints, and what it says when the request makes no sense."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from bench import frame
from bench.machine import ROOT

FACTS = {"bench", "commit", "cores", "load", "python", "etcd"}


def bench(*arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    env = {**os.environ, "PATH": path}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=120)


def test_without_a_name_it_lists_every_benchmark_with_its_summary() -> None:
    listed = bench()
    assert listed.returncode == 0
    for name in frame.names():
        assert f"  {name:10} {frame.summary(name)}\n" in listed.stdout
        assert frame.summary(name).endswith(".")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["no-such"], "bench: unknown benchmark 'no-such'; python -m bench lists them\n"),
        (["store", "--keys", "few"], "bench: --keys: expected `int`, got `str`\n"),
        (["store", "--keys", "0"], "bench: --keys: expected `int` >= 1\n"),
        (
            ["store", "--key", "9"],
            "bench: unrecognized arguments: --key 9; python -m bench store --help lists the options\n",
        ),
    ],
)
def test_an_invalid_command_line_is_refused_in_one_sentence(arguments: Sequence[str], sentence: str) -> None:
    refused = bench(*arguments)
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", sentence)


def test_a_missing_requirement_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "etcd").write_text("#!/bin/sh\necho 'etcd Version: 3.5.1'\n")
    (tmp_path / "etcd").chmod(0o755)
    failed = bench("store", "--keys", "1", path=f"{tmp_path}:{os.environ['PATH']}")
    sentence = f"bench: {tmp_path}/etcd: etcd 3.5.1 can lose data when it is killed; use 3.5.6 or newer\n"
    assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", sentence)


def test_help_names_each_option_with_its_default() -> None:
    told = bench("store", "--help").stdout
    assert "--keys KEYS" in told
    assert "keys in the store (default 100000)" in told


def test_figures_are_printed_with_four_digits_and_lists_too() -> None:
    class Figures(msgspec.Struct):
        rate: float
        waits: list[float]
        count: int
        missing: float | None

    shown = frame.record("some", Figures(81234.56, [1.00004, 2.0], 123456, None), {"cores": 2})
    assert shown == {
        "bench": "some",
        "rate": 81230.0,
        "waits": [1.0, 2.0],
        "count": 123456,
        "missing": None,
        "cores": 2,
    }


def test_the_json_line_is_the_last_of_stdout_and_says_where_the_figures_come_from(etcd_installed: None) -> None:
    done = bench("store", "--keys", "50", "--json")
    assert done.returncode == 0
    line = json.loads(done.stdout.splitlines()[-1])
    assert set(line) >= FACTS
    assert line["bench"] == "store"
    assert line["cores"] >= 1
    assert line["load"] >= 0
    assert line["python"].count(".") == 2
    assert line["etcd"].count(".") == 2


def test_a_terminated_benchmark_leaves_nothing_behind(etcd_installed: None) -> None:
    command = [sys.executable, "-m", "bench", "store", "--keys", "50000"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        until(lambda: any("--data-dir=" in line for line in started_by(running.pid).values()))
        children = started_by(running.pid)
        running.terminate()
        assert running.wait(120) == 130
    (data,) = re.findall(r"--data-dir=(\S+)", " ".join(children.values()))
    assert not Path(data).exists()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))  # the kernel takes a moment to bury them


def started_by(pid: int) -> dict[str, str]:
    """The command lines of a process's children."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has just ended
            found[child] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)
