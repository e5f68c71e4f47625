"""The deletes of the brake's sliding minute on disk: what is counted after a restart, and what is not."""

from __future__ import annotations

from pathlib import Path

from holdfast.model.base.time import Instant, seconds
from holdfast.reconcile import Brake, Change, Op, Owned, one_kind
from holdfast.runtime.reconciler.brake_memory import BrakeMemory

T0 = Instant(5_000_000_000_000)


def new_brake() -> Brake[int, str]:
    return Brake("routes/brake", one_kind("routes"))


def deletes(count: int) -> list[Change[int, str]]:
    return [Change(Op.DELETE, key, Owned("x", "a", 1), None) for key in range(count)]


def recalled(path: Path, now: Instant, boot: str = "boot-1") -> int:
    """Number of deletes that the brake of a new process counts."""
    brake = new_brake()
    BrakeMemory(path, boot).recall(brake, now)
    return sum(count for times in brake.window((), now).values() for count in times.values())


def test_deletes_count_from_before_they_are_applied_until_their_minute_is_over(tmp_path: Path) -> None:
    brake, memory = new_brake(), BrakeMemory(tmp_path / "deletes", "boot-1")
    memory.add(brake, deletes(7), T0)
    memory.add(brake, deletes(5), T0 + seconds(30))
    assert [recalled(tmp_path / "deletes", T0 + seconds(age)) for age in (0, 59, 60, 89, 90)] == [12, 12, 5, 5, 0]


def test_a_process_that_restarts_twice_keeps_the_deletes_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "deletes"
    BrakeMemory(path, "boot-1").add(new_brake(), deletes(7), T0)
    second, brake = BrakeMemory(path, "boot-1"), new_brake()
    second.recall(brake, T0 + seconds(10))
    second.add(brake, deletes(5), T0 + seconds(10))
    assert recalled(path, T0 + seconds(20)) == 12


def test_what_was_not_applied_after_all_is_not_counted(tmp_path: Path) -> None:
    brake, memory = new_brake(), BrakeMemory(tmp_path / "deletes", "boot-1")
    added = memory.add(brake, deletes(7), T0)
    memory.take_back(brake, added, T0)
    assert recalled(tmp_path / "deletes", T0) == 0


def test_the_times_of_another_boot_mean_nothing(tmp_path: Path) -> None:
    BrakeMemory(tmp_path / "deletes", "boot-1").add(new_brake(), deletes(7), T0)
    assert recalled(tmp_path / "deletes", T0, boot="boot-2") == 0


def test_an_unreadable_file_is_reported_and_replaced_by_the_next_delete(tmp_path: Path) -> None:
    path = tmp_path / "deletes"
    path.write_bytes(b'{"boot":')
    assert recalled(path, T0) == 0
    BrakeMemory(path, "boot-1").add(new_brake(), deletes(7), T0)
    assert recalled(path, T0) == 7


def test_a_folder_that_takes_no_writes_stops_nothing(tmp_path: Path) -> None:
    memory = BrakeMemory(tmp_path / "missing" / "deletes", "boot-1")
    assert memory.add(new_brake(), deletes(7), T0) == {"routes": 7}
    (tmp_path / "missing").mkdir()
    memory.add(new_brake(), deletes(5), T0)
    assert recalled(tmp_path / "missing" / "deletes", T0) == 12
