"""Command line of the benchmarks: finds them, parses their options and prints their figures.

With `--json` the last line of stdout is one JSON object, the figures plus commit and machine. An error in the command
line, or a missing tool, is one sentence on stderr and a non-zero exit code.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from msgspec import inspect

from bench.benchmark import Benchmark, Unmeasurable
from bench.machine import facts
from bench.quiet import logs_to_stderr
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.embedded.binary import NoEtcd

SUITE = Path(__file__).parent / "suite"
DIGITS = 4
"""Significant digits of a printed measurement: more would be noise."""


class Misused(Exception):
    """The command line is invalid. The message is one sentence."""


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Misused(f"{message}; {self.prog} --help lists the options")


def main(arguments: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    logs_to_stderr()
    try:
        if not arguments or arguments[0].startswith("-"):
            return _list(arguments)
        return _run(arguments[0], arguments[1:])
    except Misused as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except (Unmeasurable, NoEtcd, StoreAway, StoreError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def names() -> Sequence[str]:
    """Return the names of all benchmarks."""
    return sorted(path.stem for path in SUITE.glob("*.py") if path.stem != "__init__")


def summary(name: str) -> str:
    """Return the benchmark's description. Parsed, not imported: a list must not need what each benchmark needs."""
    docstring = ast.get_docstring(ast.parse((SUITE / f"{name}.py").read_text(encoding="utf-8")))
    return (docstring or "").partition("\n")[0]


def load(name: str) -> Benchmark[Any, Any]:
    """Return the benchmark of that name. Raises `Misused`, or `Unmeasurable` if a package that it needs is missing."""
    if name not in names():
        raise Misused(f"unknown benchmark {name!r}; python -m bench lists them")
    try:
        found = importlib.import_module(f"bench.suite.{name}").BENCHMARK
    except ModuleNotFoundError as error:
        raise Unmeasurable(f"{name} needs the Python package {error.name}; run make setup") from error
    assert isinstance(found, Benchmark)
    return found


def record(name: str, figures: msgspec.Struct, machine: Mapping[str, object]) -> dict[str, object]:
    """Return the contents of the JSON line."""
    measured = {field: _rounded(value) for field, value in msgspec.structs.asdict(figures).items()}
    return {"bench": name, **measured, **machine}


def _list(arguments: Sequence[str]) -> int:
    _Options(prog="python -m bench", usage="%(prog)s NAME [options] [--json]").parse_args(arguments)
    print("python -m bench NAME [options] [--json]\n")
    for name in names():
        print(f"  {name:10} {summary(name)}")
    return 0


def _run(name: str, arguments: Sequence[str]) -> int:
    benchmark = load(name)
    options, as_json = _parse(name, benchmark, arguments)
    machine = facts()
    found = record(name, benchmark.measure(options), machine)
    if as_json:
        print(msgspec.json.encode(found).decode())
    else:
        width = max(map(len, found))
        for key, value in found.items():
            print(f"{key:{width}}  {_shown(value)}")
    return 0


def _parse(name: str, benchmark: Benchmark[Any, Any], arguments: Sequence[str]) -> tuple[Any, bool]:
    parser = _Options(prog=f"python -m bench {name}", description=summary(name), allow_abbrev=False)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line")
    fields = _fields(benchmark)
    for field in fields:
        text = f"{_description(field.type)} (default {field.default})"
        parser.add_argument(_flag(field.name), dest=field.name, metavar=field.name.upper(), help=text)
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    return _options(benchmark, {key: text for key, text in given.items() if text is not None}), as_json


def _options(benchmark: Benchmark[Any, Any], given: Mapping[str, str]) -> Any:
    try:
        return msgspec.convert(given, benchmark.options, strict=False)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        raise Misused(f"{_flag(place.rstrip('`'))}: {what[:1].lower()}{what[1:]}") from error


def _fields(benchmark: Benchmark[Any, Any]) -> Sequence[inspect.Field]:
    kind = inspect.type_info(benchmark.options)
    assert isinstance(kind, inspect.StructType)
    return kind.fields


def _description(kind: inspect.Type) -> str:
    schema = kind.extra_json_schema if isinstance(kind, inspect.Metadata) else None
    return str((schema or {}).get("description", "")) or "see bench/suite"


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _shown(value: object) -> str:
    if value is None:
        return "not measured"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
