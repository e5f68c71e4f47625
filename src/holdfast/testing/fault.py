"""`@fault`: a scenario of the fault matrix, run with its protection and without it.

    @fault("C5", without="holdfast.runtime.daemon.pulse:is_completed", returns=False, sees=(AssertionError, "alive"))
    def test_C5_a_finished_one_shot_job_is_left_alone(…): …

The test runs twice, each time with fresh fixtures: as it is, when it must pass; and with the named function replaced,
when it must fail **in the way that the row describes**. That takes all of these:

- The failure is of the type that `sees` names, and the pattern is found in its text or in the statement of the test
  that failed: that promise of the test is broken, and not another one.
- The stand-in was called before, in this process or in one that the test started: both load the replacement, and a
  record that they share says so. A failure before the scenario is armed counts for nothing. A scenario is armed by the
  first call of the stand-in or, where the protection also works while the test prepares, by the test: with `arms=True`
  the original stays in force until the test calls `arm()`.
- What is replaced is a protection of ours, never a piece of the tests or of a simulator.

A removed run waits for a condition (`wait_until`) for at most three times what the held run took, and 2 s.

With `--placebo` the first of the two runs has the protection replaced too, by one that calls the original: it must
pass, and must have been called. `make faults` runs this way.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import gc
import linecache
import os
import re
import tempfile
import time
import traceback
from collections.abc import Generator, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.testing.protection import (
    ARMED,
    CALLED,
    VARIABLE,
    Removal,
    decode_removal,
    replacement,
    waiting_at_most,
)

Sees = tuple[type[BaseException] | tuple[type[BaseException], ...], str]
"""Type of a failure, and a pattern."""
_FOLDER = Path(__file__).parent / "removal"
_TESTS = Path.cwd() / "tests"
_held_for: dict[str, float] = {}
"""Seconds that each test has taken with its protection, in this process."""
_NOT_OURS = ("holdfast.testing", "tests")
_MATCHES_ANYTHING = "something else entirely"


def fault(
    *rows: str,
    without: str,
    sees: Sees,
    returns: object = None,
    by: str | None = None,
    arms: bool = False,
) -> pytest.MarkDecorator:
    """Mark a test as the proof of these rows.

    `without` names the protection (`module:function` or `module:Class.method`); it is replaced by the function that
    `by` names, or by one that does nothing and returns `returns`, which must be plain JSON. `sees` is the type of the
    failure that follows from that and a pattern that is found in what `described` returns.
    """
    if without.split(":")[0].startswith(_NOT_OURS):
        raise ValueError(f"{without} is no protection: name a function of the product")
    if re.search(sees[1], _MATCHES_ANYTHING) or re.search(sees[1], ""):
        raise ValueError(f"sees={sees[1]!r} matches any text: say what goes wrong without the protection")
    return pytest.mark.fault(rows=rows, without=without, sees=sees, returns=returns, by=by, arms=arms)


def arm() -> None:
    """Arm the scenario of a test with `arms=True`: from now on it runs without its protection."""
    if VARIABLE in os.environ:
        decode_removal(os.environ[VARIABLE]).note(ARMED)


@contextlib.contextmanager
def installed(removal: Removal) -> Iterator[None]:
    """Replace a protection in this process and in every Python process started inside the block."""
    here = os.pathsep.join([str(_FOLDER), str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    with replacement(removal), patch.dict(os.environ, {VARIABLE: removal.encode(), "PYTHONPATH": here}):
        yield


@contextlib.contextmanager
def record_file() -> Iterator[str]:
    """Make an empty record, which processes of other users may write to as well."""
    with tempfile.TemporaryDirectory(prefix="holdfast-fault-") as folder:
        record = Path(folder, "record")
        record.touch()
        Path(folder).chmod(0o711)
        record.chmod(0o622 if os.geteuid() == 0 else 0o600)
        yield str(record)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--placebo", action="store_true", help="run fault tests with the protection replaced by one that calls it"
    )
    parser.addoption("--rows", help="run the tests of these rows of the fault matrix alone: C5,N9, or all")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("fault") is not None:
        metafunc.fixturenames.append("protection")
        metafunc.parametrize("protection", ["held", "removed"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the rows that are asked for; their reports say which rows they are of."""
    asked = config.getoption("rows")
    if asked is None:
        return
    kept: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("fault")
        if mark is None or not isinstance(item, pytest.Function):
            continue
        if asked == "all" or not set(asked.split(",")).isdisjoint(mark.kwargs["rows"]):
            item.user_properties += [("rows", mark.kwargs["rows"]), ("run", item.callspec.params["protection"])]
            kept.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    mark = pyfuncitem.get_closest_marker("fault")
    if mark is None:
        return (yield)
    is_removed = pyfuncitem.callspec.params["protection"] == "removed"
    scenario = pyfuncitem.nodeid.replace("removed", "held")
    if not is_removed:
        begun = time.monotonic()
        result = (yield from _replaced_run(pyfuncitem, mark)) if pyfuncitem.config.getoption("placebo") else (yield)
        _held_for[scenario] = time.monotonic() - begun
        return result
    held_for = _held_for.get(scenario)
    with waiting_at_most(None if held_for is None else 3 * held_for + 2):
        return (yield from _replaced_run(pyfuncitem, mark))


def _replaced_run(pyfuncitem: pytest.Function, mark: pytest.Mark) -> Generator[None, object, object]:
    """Run a test with its protection removed, when its failure is its success, or replaced by a placebo."""
    is_removed = pyfuncitem.callspec.params["protection"] == "removed"
    told = mark.kwargs
    rows = ", ".join(told["rows"])
    with record_file() as record:
        removal = Removal(told["without"], record, told["returns"], told["by"], not is_removed, told["arms"])
        with installed(removal):
            try:
                result = yield
            except pytest.skip.Exception:
                raise
            except BaseException as failure:
                if not is_removed or not isinstance(failure, (Exception, pytest.fail.Exception)):
                    raise
                problem = judge(failure, told["sees"], removal)
                if problem is not None:
                    failure.add_note(f"{rows}: {told['without']} was removed, but {problem}")
                    raise
                return True
        if not removal.has_happened(CALLED):
            pytest.fail(f"{rows}: {told['without']} was never called, so that the test does not depend on it")
    if is_removed:
        pytest.fail(f"{rows}: nothing noticed that {told['without']} was removed")
    return result


def judge(failure: BaseException, sees: Sees, removal: Removal) -> str | None:
    """Return why a failure does not show what the removal did, or None if it does."""
    expected, pattern = sees
    if removal.waits and not removal.has_happened(ARMED):
        return "the test failed before it armed the scenario"
    if not removal.has_happened(CALLED):
        return "the stand-in was not called before the test failed"
    if not any(isinstance(one, expected) and re.search(pattern, described(one)) for one in _each(failure)):
        return f"what followed is not the failure {pattern!r} that the row describes"
    return None


def described(failure: BaseException) -> str:
    """Return the text of a failure, and the statements of the tests' own files in which it came up, a line each."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(failure.__traceback__)]
    return "\n".join([str(failure), *(_statement(file, line) for file, line in frames if _TESTS in Path(file).parents)])


def _statement(file: str, line: int) -> str:
    """Return the innermost statement at that line, on one line; of a block its head."""
    inside = [
        node
        for node in ast.walk(_parsed(file))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    node = max(inside, key=lambda node: node.lineno)
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if body else node.end_lineno
    lines = linecache.getlines(file)[node.lineno - 1 : last]
    return " ".join(" ".join(lines).split())


@functools.lru_cache(maxsize=8)
def _parsed(file: str) -> ast.Module:
    """Parse without garbage collection: where it runs inside, CPython 3.11 loses count of its depth (SystemError)."""
    gc.disable()
    try:
        return ast.parse("".join(linecache.getlines(file)))
    finally:
        gc.enable()


def _each(failure: BaseException) -> Iterator[BaseException]:
    """Yield the failure, or each one in a group."""
    if isinstance(failure, BaseExceptionGroup):
        for one in failure.exceptions:
            yield from _each(one)
    else:
        yield failure
