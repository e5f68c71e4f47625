"""`holdfast config reload` on a machine with several daemons, each with a configuration file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.config.loading.reload import FieldChange, Reload
from holdfast.runtime.control import Declined, Handler, Request, Unanswered, Who
from tests.cli.control_sockets import control_sockets

APPLIED = Reload(applied=(FieldChange("log.level", "info", "debug"),), unchanged=95)
REFUSED = "the new configuration was rejected, and the running one stays in force:\nh.yaml:2:1: is not YAML"


def daemon(answer: Reload | Declined) -> dict[str, Handler]:
    async def reload(_request: Request, _who: Who) -> Any:
        if isinstance(answer, Declined):
            raise answer
        return msgspec.to_builtins(answer)

    return {"reload": reload}


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Path]:
    """Of three daemons, the first refuses its file and the second does not answer."""
    answers: dict[str, Reload | Declined] = {"a": Declined(REFUSED), "b": Unanswered("no answer"), "c": APPLIED}
    with control_sockets(tmp_path, {name: daemon(answer) for name, answer in answers.items()}) as folder:
        yield folder


def reload(runtime: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["config", "reload", *words, "--runtime", str(runtime)])


def test_a_file_that_one_daemon_refuses_keeps_no_other_from_reloading_its_own(runtime: Path) -> None:
    asked = reload(runtime)
    assert asked.stdout == "c: applied now\n  log.level: info → debug\nc: 95 fields unchanged\n"
    assert asked.stderr == f"Error: a: {REFUSED}\nError: b: no answer\n"
    assert asked.exit_code == 1


@pytest.mark.parametrize(("daemon", "code"), [("a", 1), ("b", 3), ("c", 0)])
def test_the_exit_code_tells_a_refusal_from_no_answer(runtime: Path, daemon: str, code: int) -> None:
    assert reload(runtime, daemon).exit_code == code


def test_a_document_has_the_daemons_that_reloaded(runtime: Path) -> None:
    document = msgspec.json.decode(reload(runtime, "-o", "json").stdout)
    assert {name: one["unchanged"] for name, one in document.items()} == {"c/server": 95}
