"""A fault test counts only when what its row describes follows from the removal, and from nothing else."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.fault import arm, described, fault, installed, judge, record_file
from holdfast.testing.protection import ARMED, CALLED, Removal, patience, waiting_at_most
from holdfast.testing.real.processes import wait_until

GREETING = "tests.testing.guarded:greeting"


@pytest.fixture
def record() -> Iterator[str]:
    with record_file() as made:
        yield made


def greet() -> str:
    from tests.testing import guarded

    return guarded.greeting("you")


def test_the_stand_in_takes_the_protections_place_and_its_first_call_is_recorded(record: str) -> None:
    removal = Removal(GREETING, record, returns="silence")
    with installed(removal):
        assert not removal.has_happened(CALLED)
        assert [greet(), greet()] == ["silence", "silence"]
    assert Path(record).read_text(encoding="utf-8").splitlines() == [CALLED]
    assert greet() == "hello you"


def test_a_placebo_calls_the_original_and_is_recorded(record: str) -> None:
    removal = Removal(GREETING, record, returns="silence", placebo=True)
    with installed(removal):
        assert greet() == "hello you"
    assert removal.has_happened(CALLED)


@pytest.mark.parametrize("name", ["fixed", "of_class", "name"])
def test_static_and_class_methods_and_properties_stay_what_they_are(record: str, name: str) -> None:
    from tests.testing.guarded import Guarded

    before = getattr(Guarded("n"), name)
    expected = before("x") if callable(before) else before
    with installed(Removal(f"tests.testing.guarded:Guarded.{name}", record, placebo=True)):
        replaced = getattr(Guarded("n"), name)
        assert (replaced("x") if callable(replaced) else replaced) == expected


def test_another_process_runs_without_the_protection_too_and_says_so(record: str) -> None:
    script = "from tests.testing import guarded; print(guarded.greeting('you'))"
    removal = Removal(GREETING, record, returns="silence")
    with installed(removal):
        found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "silence\n"
    assert removal.has_happened(CALLED)


def test_the_original_stays_in_force_until_a_scenario_that_arms_itself_is_armed(record: str) -> None:
    removal = Removal(GREETING, record, returns="silence", waits=True)
    with installed(removal):
        assert greet() == "hello you"
        assert not removal.has_happened(CALLED)
        arm()
        assert greet() == "silence"
    assert removal.has_happened(ARMED)


def test_a_removed_run_does_not_wait_for_the_whole_limit() -> None:
    assert patience(30.0) == 30.0
    with waiting_at_most(5.0):
        assert [patience(30.0), patience(1.0)] == [5.0, 1.0]
        with pytest.raises(TimeoutError, match="nothing happens: not within"), waiting_at_most(0.01):
            wait_until(lambda: False, "nothing happens")
    assert patience(30.0) == 30.0


def test_arming_means_nothing_where_nothing_is_replaced() -> None:
    assert "FAULT_TEST_REMOVES" not in os.environ
    arm()


def failing(statement_says: str) -> Exception:
    try:
        assert not statement_says, "the host is gone"
    except AssertionError as error:
        return error
    raise RuntimeError


@pytest.mark.parametrize(
    ("sees", "problem"),
    [
        ((AssertionError, "host is gone"), None),
        ((AssertionError, "assert not statement_says"), None),
        ((TimeoutError, "host is gone"), "not the failure"),
        ((AssertionError, "another promise"), "not the failure"),
    ],
)
def test_the_failure_is_the_one_that_the_row_describes(
    record: str, sees: tuple[type[BaseException], str], problem: str | None
) -> None:
    removal = Removal(GREETING, record)
    removal.note(CALLED)
    found = judge(failing("x"), sees, removal)
    assert found is None if problem is None else problem in str(found)


def test_a_failure_before_the_stand_in_was_called_counts_for_nothing(record: str) -> None:
    assert "not called" in str(judge(failing("x"), (AssertionError, "gone"), Removal(GREETING, record)))


def test_a_failure_before_the_scenario_was_armed_counts_for_nothing(record: str) -> None:
    removal = Removal(GREETING, record, waits=True)
    removal.note(CALLED)
    assert "before it armed" in str(judge(failing("x"), (AssertionError, "gone"), removal))


def test_of_a_group_any_failure_may_be_the_one(record: str) -> None:
    removal = Removal(GREETING, record)
    removal.note(CALLED)
    group = ExceptionGroup("tasks", [ValueError("other"), failing("x")])
    assert judge(group, (AssertionError, "gone"), removal) is None


def test_of_a_block_the_head_alone_is_quoted() -> None:
    with pytest.raises(TimeoutError) as raised:
        interrupted()
    assert described(raised.value).splitlines()[2:] == [
        "with contextlib.closing(Interrupted()):",
        'raise TimeoutError("late")',
    ]


def interrupted() -> None:
    with contextlib.closing(Interrupted()):
        greet()


class Interrupted:
    def close(self) -> None:
        raise TimeoutError("late")


@pytest.mark.parametrize("pattern", ["", ".*", "e", r"\w"])
def test_a_pattern_that_matches_anything_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="matches any text"):
        fault("C5", without="holdfast.runtime.daemon.pulse:is_completed", sees=(AssertionError, pattern))


@pytest.mark.parametrize("place", ["holdfast.testing.sim.nodes:NodeClock.now", "tests.server.harness:differing"])
def test_a_piece_of_the_simulator_is_no_protection(place: str) -> None:
    with pytest.raises(ValueError, match="is no protection"):
        fault("C9", without=place, sees=(AssertionError, "leads"))
