"""Times, counts and the `To release:` lines of the output."""

from __future__ import annotations

import json

import click
import pytest
import yaml
from click.testing import CliRunner

from holdfast.cli.common.format import clock, count, fitted, print_document, release_lines, row, short, watchable


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0, "0.0 s"), (0.44, "0.4 s"), (59.94, "59.9 s"), (59.96, "1m00s"), (60, "1m00s"), (3_599.9, "59m59s")],
)
def test_short_times(seconds: float, told: str) -> None:
    assert short(seconds) == told


def test_long_times_and_counts() -> None:
    assert (short(7_500), short(219_600), clock(214.9)) == ("2h05m", "2d13h", "00:03:34")
    assert (count(34_812), count(0), count(None)) == ("34,812", "0", "–")


def test_each_way_to_release_held_changes_is_named_once() -> None:
    held, pending = {"opens": "holdfast gate allow routes/brake"}, {"opens": ""}
    assert list(release_lines([held, held, pending])) == ["To release: holdfast gate allow routes/brake"]


class _Ended(BaseException):
    """Ends a command that would run for ever."""


def looked(words: list[str], monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception | str]) -> str:
    """Return what a watched command printed, whose looks end like this."""

    def sleep(_seconds: float) -> None:
        if not outcomes:
            raise _Ended

    @click.command()
    @watchable
    def look() -> None:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        click.echo(outcome)

    monkeypatch.setattr("holdfast.cli.common.format.time.sleep", sleep)
    result = CliRunner().invoke(look, words, catch_exceptions=True)
    return result.output


def test_a_watched_command_goes_on_after_an_error_and_after_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    away, differs = click.ClickException("the daemon restarts"), click.exceptions.Exit(1)
    with pytest.raises(_Ended):
        looked(["-w"], monkeypatch, ["first", away, differs, "last"])


def test_without_watching_it_looks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looked([], monkeypatch, ["first", "second"]) == "first\n"


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_a_document_can_be_read_again(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = {"name": "größer", "problems": [{"known": True, "lag_s": None}]}
    print_document(found, output)
    text = capsys.readouterr().out
    assert (json.loads(text) if output == "json" else yaml.safe_load(text)) == found


def test_a_row_that_is_too_long_goes_on_below_its_text() -> None:
    line = row("OBJECT", "route 10.28.2.1/32 dev tap-web-02: wanted by the store since revision 213, programmed")
    shown = fitted(line, 80)
    assert shown == [
        "OBJECT      route 10.28.2.1/32 dev tap-web-02: wanted by the store since",
        "            revision 213, programmed",
    ]
    assert fitted(line, None) == [line]


def test_a_command_to_copy_is_not_wrapped() -> None:
    command = row("", f"To release: holdfast gate allow syncer/brake --once --reason {'x' * 40}")
    assert fitted(command, 80) == [command]
