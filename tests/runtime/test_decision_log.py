"""The decision log: a ring that stays within its size, survives restarts and full disks, and is read in order."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.runtime.decision_log import Decision, DecisionLog, history, segments, workers_in

ROOT = Path(__file__).parents[2]
START = datetime(2026, 1, 1, tzinfo=UTC)


def decision(number: int, worker: str = "routes", key: str = "", filler: int = 0) -> Decision:
    time = START + timedelta(milliseconds=number)
    return Decision(time, worker, "delete", key or f"r{number}", "applied", f"sentence {number}" + "." * filler)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def keys(folder: Path, last: int = 50) -> list[str]:
    return [one.key for one in history(folder, last=last)]


def test_what_was_written_is_read_back_whole_and_in_order(tmp_path: Path) -> None:
    written = [decision(number) for number in range(20)]
    log = DecisionLog(tmp_path, "lab.routes")
    log.write(written[:5])
    log.write(written[5:])
    assert history(tmp_path) == written


def test_the_ring_never_grows_beyond_its_size_and_keeps_the_newest(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, "lab.routes", ring=64_000, files=8)
    for number in range(3_000):
        log.write([decision(number)])
        assert size(tmp_path) <= 64_000
    kept = keys(tmp_path, last=0)
    assert kept == [f"r{number}" for number in range(3_000 - len(kept), 3_000)]
    assert len(segments(tmp_path, "lab.routes")) == 8
    assert size(tmp_path) > 0.8 * 64_000


def test_one_batch_larger_than_a_file_of_the_ring_stays_within_it_too(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, "lab.routes", ring=64_000, files=8)
    log.write([decision(number) for number in range(5_000)])
    assert size(tmp_path) <= 64_000
    assert keys(tmp_path, last=3) == ["r4997", "r4998", "r4999"]
    assert log.lost == 0


def test_a_restart_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    for number in range(5):
        log = DecisionLog(tmp_path, "lab.routes")
        log.write([decision(number)])
        log.close()
    assert keys(tmp_path) == ["r0", "r1", "r2", "r3", "r4"]
    assert len(segments(tmp_path, "lab.routes")) == 1


def test_restarts_do_not_let_the_ring_grow(tmp_path: Path) -> None:
    for number in range(400):
        log = DecisionLog(tmp_path, "lab.routes", ring=8_000, files=8)
        log.write([decision(number)])
        log.close()
    assert size(tmp_path) <= 8_000
    assert keys(tmp_path, last=1) == ["r399"]


@pytest.mark.parametrize("tear", [1, 10, 60])
def test_a_torn_last_line_costs_only_itself(tmp_path: Path, tear: int) -> None:
    log = DecisionLog(tmp_path, "lab.routes")
    log.write([decision(number) for number in range(3)])
    log.close()
    (path,) = segments(tmp_path, "lab.routes")
    os.truncate(path, path.stat().st_size - tear)
    after = DecisionLog(tmp_path, "lab.routes")
    after.write([decision(3), decision(4)])
    assert [key for key in keys(tmp_path) if key != "r2"] == ["r0", "r1", "r3", "r4"]


def test_rubbish_between_the_lines_is_passed_over(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, "lab.routes")
    log.write([decision(0)])
    (path,) = segments(tmp_path, "lab.routes")
    with path.open("ab") as file:
        file.write(b"\x00\xff rubbish\n" + b'{"time": "\xff"}\n' + b"[1,2]\n{}\n\n" + b"[" * 5_000 + b"\n")
    log.write([decision(1)])
    assert keys(tmp_path) == ["r0", "r1"]


def test_a_key_with_line_breaks_of_other_alphabets_is_one_record(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, "lab.routes")
    log.write([decision(0, key="a\u2028b\x85c\x0bd\x1ce")])
    assert keys(tmp_path) == ["a\u2028b\x85c\x0bd\x1ce"]


@given(st.lists(st.text(st.sampled_from('a"\\,é\u2028\n\0{}:'), max_size=6), min_size=1, max_size=5))
def test_the_same_decision_about_many_objects_reads_like_one_record_each(named: list[str]) -> None:
    said = msgspec.structs.replace(decision(7), kind="route", sentence='"key":"",","', old="s@1")
    with tempfile.TemporaryDirectory() as folder:
        log = DecisionLog(Path(folder), "lab.routes")
        log.repeat(said, named)
        log.close()
        assert history(Path(folder), last=0) == [msgspec.structs.replace(said, key=key) for key in named]


def test_a_disk_that_refuses_loses_records_counts_them_and_never_raises(tmp_path: Path) -> None:
    folder = tmp_path / "decisions"
    folder.write_text("a file where the folder should be")
    log = DecisionLog(folder, "lab.routes")
    log.write([decision(0), decision(1)])
    log.write([decision(2)])
    assert log.lost == 3
    folder.unlink()
    log.write([decision(3)])
    assert keys(folder) == ["r3"]


FULL = """
import resource, signal, sys
from pathlib import Path
from holdfast.runtime.decision_log import DecisionLog
from tests.runtime.test_decision_log import decision
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
log = DecisionLog(Path(sys.argv[1]), "lab.routes")
for number in range(100):
    log.write([decision(number)])
lost = log.lost
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.write([decision(100)])
print(lost, log.lost)
"""


def test_a_full_disk_loses_records_and_the_log_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    """The limit on the size of a file stands in for the disk: the kernel takes a part of a write, then none."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    lost, at_the_end = map(int, done.stdout.split()[-2:])
    found = keys(tmp_path, last=0)
    assert lost == at_the_end == 101 - len(found)
    assert 0 < lost < 100
    assert found == [*(f"r{number}" for number in range(100 - lost)), "r100"]
    assert (
        done.stdout.count("decision log cannot be written") + done.stderr.count("decision log cannot be written") == 1
    )


def test_history_merges_workers_in_the_order_of_time(tmp_path: Path) -> None:
    one, other = DecisionLog(tmp_path, "lab.routes"), DecisionLog(tmp_path, "lab.supervisor")
    one.write([decision(number) for number in (0, 3, 4)])
    other.write([decision(number, "supervisor") for number in (1, 2, 5)])
    assert keys(tmp_path) == ["r0", "r1", "r2", "r3", "r4", "r5"]
    assert keys(tmp_path, last=2) == ["r4", "r5"]
    assert workers_in(tmp_path) == ["lab.routes", "lab.supervisor"]


def test_history_of_a_role_leaves_out_the_other_daemons_of_the_host(tmp_path: Path) -> None:
    DecisionLog(tmp_path, "agent.peers").write([decision(0)])
    DecisionLog(tmp_path, "server.syncer").write([decision(1)])
    assert [one.key for one in history(tmp_path, role="server")] == ["r1"]
    assert [one.key for one in history(tmp_path, role="agent")] == ["r0"]


def test_history_of_one_key_reaches_back_over_all_files(tmp_path: Path) -> None:
    log = DecisionLog(tmp_path, "lab.routes", ring=64_000, files=8)
    for number in range(300):
        log.write([decision(number, key="mine" if number in (2, 150, 299) else "")])
    assert len(segments(tmp_path, "lab.routes")) > 2
    assert [one.sentence for one in history(tmp_path, "mine", 2)] == ["sentence 150", "sentence 299"]
    assert len(history(tmp_path, "mine")) == 3


def test_no_decisions_yet_is_an_empty_history(tmp_path: Path) -> None:
    assert history(tmp_path / "not made yet") == []


def test_workers_whose_names_begin_alike_have_rings_of_their_own(tmp_path: Path) -> None:
    DecisionLog(tmp_path, "lab.routes").write([decision(0)])
    DecisionLog(tmp_path, "lab.routes.more").write([decision(1)])
    assert len(segments(tmp_path, "lab.routes")) == 1
    assert keys(tmp_path) == ["r0", "r1"]
