"""`@fault`: a scenario of the fault matrix, run with its protection and without it.

    @fault("C5", without="holdfast.runtime.daemon.pulse:is_completed", returns=False)
    def test_C5_a_finished_one_shot_job_is_left_alone(…): …

The test runs twice, each time with fresh fixtures: as it is, when it must pass; and with the named function replaced,
when it must fail. A protection whose removal no test notices is untested. The replacement also holds in every Python
process that the test starts (`PYTHONPATH` and `FAULT_TEST_REMOVES` are set for it), so that scenarios with real
processes are no exception.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from holdfast.testing.protection import apply_removal

VARIABLE = "FAULT_TEST_REMOVES"
_OUR_OWN_FAULTS = (ImportError, AttributeError, NameError, TypeError, SyntaxError)
_FOLDER = Path(__file__).parent / "removal"


def fault(*rows: str, without: str, returns: object = None, by: str | None = None) -> pytest.MarkDecorator:
    """Mark a test as the proof of these rows.

    `without` names the protection (`module:function` or `module:Class.method`); it is replaced by the function that
    `by` names, or by one that does nothing and returns `returns`, which must be plain JSON.
    """
    return pytest.mark.fault(rows=rows, without=without, returns=returns, by=by)


@contextlib.contextmanager
def removed(without: str, returns: object = None, by: str | None = None) -> Iterator[None]:
    """Remove a protection in this process and in every Python process started inside the block."""
    owner, path, stand_in = apply_removal(without, returns, by)
    removal = json.dumps({"without": without, "returns": returns, "by": by})
    here = os.pathsep.join([str(_FOLDER), str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (
        patch.object(owner, path.rpartition(".")[2], stand_in),
        patch.dict(os.environ, {VARIABLE: removal, "PYTHONPATH": here}),
    ):
        yield


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("fault") is not None:
        metafunc.fixturenames.append("protection")
        metafunc.parametrize("protection", ["held", "removed"])


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    mark = pyfuncitem.get_closest_marker("fault")
    if mark is None or pyfuncitem.callspec.params.get("protection") != "removed":
        return (yield)
    with removed(mark.kwargs["without"], mark.kwargs["returns"], mark.kwargs["by"]):
        try:
            yield
        except pytest.skip.Exception:
            raise
        except (Exception, pytest.fail.Exception) as failure:
            if _is_our_own(failure):
                raise  # a removal that breaks the test itself proves nothing
            return True
    pytest.fail(f"{', '.join(mark.kwargs['rows'])}: nothing noticed that {mark.kwargs['without']} was removed")


def _is_our_own(failure: BaseException) -> bool:
    """Return True for an error of the removal itself, also inside a group."""
    if isinstance(failure, BaseExceptionGroup):
        return failure.subgroup(_OUR_OWN_FAULTS) is not None
    return isinstance(failure, _OUR_OWN_FAULTS)
