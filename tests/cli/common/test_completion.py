"""Completion in the shell: an answer of another version completes nothing."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from holdfast.cli.common import completion


@pytest.mark.parametrize("answer", [{}, {"backends": [{}]}, None, {"backends": [3]}])
def test_an_answer_without_names_completes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(completion, "send_command", lambda *_words: answer)
    context = click.Context(click.Command("explain"))
    context.params = {"kind": "backend", "runtime": str(tmp_path)}
    assert completion.complete_name(context, click.Argument(["name"]), "") == []
