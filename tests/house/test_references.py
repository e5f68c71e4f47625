"""The generated references name every command and request; the command line takes every command of the documents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

import holdfast.cli
from docs import api_reference, command_reference
from tests.house import repository

DOCUMENTS = [path for path in repository.files() if path.suffix == ".md" and path.name != "CHANGELOG.md"]
IN_SENTENCES = re.compile(r"`(?:sudo )?(?:\.venv/bin/)?holdfast ([a-z-][^`]*)`")
IN_BLOCKS = re.compile(r"^ +(?:\$ )?(?:sudo )?(?:until )?(?:\.venv/bin/)?holdfast ([a-z-].*)$", re.MULTILINE)
BEHIND_A_COMMAND = re.compile(r" #| {2,}| \| | > | \|\| |; ")
"""What ends the words of a command: a comment, its description in a column, or the shell."""

COMMANDS = [" ".join(path[1:]) for path, _ in command_reference.commands(holdfast.cli.main)]


def test_every_command_is_in_the_reference_with_its_options() -> None:
    page = command_reference.reference()
    assert {name.split()[0] for name in COMMANDS} >= set(holdfast.cli.COMMANDS)
    sections = re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]
    assert len(sections) == len(COMMANDS)
    assert [one.partition("\n")[0] for one in sections if "Usage: holdfast " not in one] == []
    assert "--once" in next(one for one in sections if one.startswith("`holdfast gate allow`"))


def test_every_request_is_in_the_reference_with_a_sentence() -> None:
    page = api_reference.reference()
    requests = [(verb.upper(), path) for path, verbs in api_reference.openapi()["paths"].items() for verb in verbs]
    assert len(requests) > 15
    assert [request for request in requests if f"## `{' '.join(request)}`\n\n" not in page] == []
    assert "\n.\n" not in page
    assert "- `reason` in the body: string, required" in page


def commands(text: str) -> Iterator[str]:
    """Return the words behind every `holdfast` of a document, without what is only put beside them."""
    for line in IN_BLOCKS.findall(text):
        yield BEHIND_A_COMMAND.split(line)[0]
    for line in IN_SENTENCES.findall(text):
        yield " ".join(line.split())


def refusal(words: Sequence[str]) -> str | None:
    """Return why the command line does not take these words. A value is looked at only where a few are allowed."""
    command: click.Command = holdfast.cli.main
    context = click.Context(command, info_name="holdfast")
    try:
        while True:
            values, rest, _ = command.make_parser(context).parse_args(list(words))
            if wrong := [one for one in command.params if not is_choice(one, values.get(one.name or ""))]:
                return f"{context.command_path}: {wrong[0].name} cannot be {values[wrong[0].name or '']}"
            if not rest:
                return None
            if not isinstance(command, click.Group):
                return f"{context.command_path} takes no {' '.join(rest)}"
            below = command.get_command(context, rest[0])
            if below is None:
                return f"{context.command_path} has no {rest[0]}"
            context = click.Context(below, info_name=rest[0], parent=context)
            command, words = below, rest[1:]
    except click.UsageError as error:
        return error.format_message()


def is_choice(parameter: click.Parameter, value: object) -> bool:
    """Return False for a value that is none of those allowed. `NAME`, `…` and `a|b` stand for one that is."""
    if not isinstance(parameter.type, click.Choice) or not isinstance(value, str):
        return True
    return value in parameter.type.choices or value.isupper() or bool(set("|…") & set(value))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_command_that_a_page_shows_is_taken_with_its_options(document: Path) -> None:
    shown = list(commands(document.read_text(encoding="utf-8")))
    assert [(one, why) for one in shown if (why := refusal(shlex.split(one))) is not None] == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("delte host r1", "no command"),
        ("config chek", "has no chek"),
        ("delete host r1 --resaon x", "No such option"),
        ("leader now", "takes no now"),
        ("pause rack r12 --reason x", "cannot be rack"),
    ],
)
def test_a_misspelt_command_would_be_found(words: str, why: str) -> None:
    found = refusal(words.split())
    assert found is not None
    assert why in found or "has no delte" in found
