"""YAML: accepted and refused features, each refusal with its line and column."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config import Config, ConfigFile, ConfigRejected, resolve
from holdfast.config.loading.yaml import LARGEST, ScalarNode, TableNode, parse
from holdfast.config.schema.field import fields

SECTIONS = ", ".join(fields(Config))


def problems(data: bytes | str) -> list[str]:
    """The problems of a file called `f`, one per line."""
    raw = data if isinstance(data, bytes) else data.encode()
    result = resolve(ConfigFile("f", raw), {})
    return str(result).splitlines() if isinstance(result, ConfigRejected) else []


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("log:\n  level: info\n  level: debug\n", "f:3:3: log.level: is given twice, first on line 2: remove one"),
        ("log: {}\nlog: {}\n", "f:2:1: log: is given twice, first on line 1: remove one"),
        (
            "log: {}\n---\nlog: {}\n",
            "f:2:1: begins a second document: the configuration is one document, remove this ---",
        ),
        ("log:\n\tlevel: info\n", "f:2:1: is indented with a tab: YAML takes only spaces"),
        ("", "f: is empty: for the defaults alone, write a comment into it or remove it"),
        (" \n\n", "f: is empty: for the defaults alone, write a comment into it or remove it"),
        (b"log:\n  level: \xff\n", "f:2:10: is not UTF-8: save the file as UTF-8"),
        ("log:\n  level: a\x07\n", "f:2:11: holds a control character, which YAML does not allow"),
        (
            "- log\n",
            f"f:1:1: does not begin with a section: write one of {SECTIONS}, and a colon",
        ),
        (
            "log\n",
            f"f:1:1: does not begin with a section: write one of {SECTIONS}, and a colon",
        ),
        ("[" * 1000, "f:1:18: is nested deeper than 16 levels, which no configuration needs"),
        ("#" * (LARGEST + 1), "f: is larger than 256 KiB, which no configuration needs"),
        ("log:\n  level: *x\n", "f:2:10: log.level: is an alias (*): write the value out"),
        ("log:\n  level: &x info\n", "f:2:10: log.level: has an anchor (&): write the value wherever it is needed"),
        ("log:\n  <<: {level: info}\n", "f:2:3: log.<<: is a merge key: write the values out"),
        ("log:\n  level: !!str info\n", "f:2:10: log.level: has a tag (!): remove it, the field decides the type"),
        ("log:\n  ? [a]\n  : b\n", "f:2:5: log.?: has a key that is not a word"),
        ("log: {level: info\n", "f:2:1: is not YAML: expected ',' or '}', but got '<stream end>'"),
        ("log: info\n", "f:1:6: log: is a section: write its fields below it, indented"),
    ],
)
def test_invalid_yaml_is_one_problem_with_line_and_column(file: bytes | str, problem: str) -> None:
    assert problems(file) == [problem]


@pytest.mark.parametrize("file", ["# nothing yet\n", "---\n", "log:\n", "log: {}\n", "\ufefflog:\n  level: info\n"])
def test_a_file_without_values_gives_the_defaults(file: str) -> None:
    assert problems(file) == []


def test_an_alias_in_a_list_is_one_problem() -> None:
    assert problems("store:\n  endpoints: [*x]\n") == [
        "f:2:15: store.endpoints[0]: is an alias (*): write the value out"
    ]


def test_scalars_stay_text_with_their_position() -> None:
    root = parse("a: 1:30\nb: 2026-01-01\nc: 0o12\n").root
    assert isinstance(root, TableNode)
    texts = [(value.text, value.mark.line) for _, value in root.entries if isinstance(value, ScalarNode)]
    assert texts == [("1:30", 1), ("2026-01-01", 2), ("0o12", 3)]


@pytest.mark.parametrize("file", ['log: "\\UFFFFFFFF"', "%YAML 1." + "1" * 5000 + "\n---\nlog: {}\n"])
def test_numbers_too_large_for_the_parser_do_not_crash_it(file: str) -> None:
    (said,) = problems(file)
    assert said.endswith("is not YAML: after this there is a number or an escape that is too large")


@settings(deadline=None)
@given(st.text())
def test_any_text_gives_a_configuration_or_problems(file: str) -> None:
    result = resolve(ConfigFile("f", file.encode("utf-8", "surrogatepass")), {})
    assert not isinstance(result, ConfigRejected) or all(str(problem).isprintable() for problem in result.problems)


@settings(deadline=None)
@given(st.binary())
def test_any_bytes_give_a_configuration_or_problems(file: bytes) -> None:
    result = resolve(ConfigFile("f", file), {})
    assert not isinstance(result, ConfigRejected) or result.problems


YAML_PIECES = st.lists(
    st.sampled_from(
        ["log", "store", "endpoints", "level", ": ", "\n", "  ", "- ", "[", "]", "{", "}", "*a", "&a ", "!!int ", "<<",
         '"', "'", "|", ">", "? ", "---\n", "...\n", "%YAML 1.1\n", "#", ",", "\t", "~", "5s", "null", "\\U"]
    ),
    max_size=30,
).map("".join)  # fmt: skip


@settings(deadline=None)
@given(YAML_PIECES)
def test_any_yaml_gives_a_configuration_or_problems(file: str) -> None:
    result = resolve(ConfigFile("f", file.encode()), {})
    assert not isinstance(result, ConfigRejected) or all(str(problem).isprintable() for problem in result.problems)
