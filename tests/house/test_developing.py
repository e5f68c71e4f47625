"""docs/developing names files that exist and symbols that they define, so that its map and its walks cannot rot.

A block of a page is one paragraph, one step of a list or one row of a table. Each path in a block exists; each symbol
in it is defined in one of the files or folders that the block names, or anywhere, if it names none.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house import repository

ROOT = repository.ROOT
SOURCES = ROOT / "src" / "holdfast"
FOLDER = ROOT / "docs" / "developing"
PAGES = sorted(FOLDER.glob("*.md"))
WALKS = sorted(FOLDER.glob("walk-*.md"))
INDEX = (FOLDER / "index.md").read_text(encoding="utf-8")

_is_path = re.compile(r"[\w.-]*(?:/[\w.-]+)*(?:\.(?:py|sh|md|toml|lock|yaml)|/)").fullmatch
_is_symbol = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(.*\))?").fullmatch
_FAULT = re.compile(r"\b[CNB]\d+\b")
_NO_SYMBOLS = {"None", "finally", "api", "openstack", "testing", "pure", "server"}
"""Words in code font that are no symbols: Python's own, planned rooms, a contract of import-linter, an extra."""


class Block(NamedTuple):
    page: str
    text: str

    @property
    def is_step(self) -> bool:
        return re.match(r"\d+\. ", self.text) is not None

    @property
    def paths(self) -> list[str]:
        return [name for name in self._code() if _is_path(name)]

    @property
    def symbols(self) -> list[str]:
        named = [name for name in self._code() if not _is_path(name) and _is_symbol(name)]
        return [name.partition("(")[0] for name in named if name not in _NO_SYMBOLS]

    def _code(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.text)


def blocks(page: Path) -> Iterator[Block]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=\||#|- |\d+\. )", text):
        yield Block(page.name, " ".join(block.split()))


def located(path: str) -> list[Path]:
    """What a page means by a path: below the sources or the root; a bare file name may be anywhere in the sources."""
    found = [base / path for base in (SOURCES, ROOT) if (base / path).exists()]
    return found or ([] if "/" in path else list(SOURCES.rglob(path)))


@functools.cache
def defined(path: Path) -> frozenset[str]:
    """Names that a file or the modules of a folder define, members of classes also as `Class.member`."""
    if path.is_dir():
        modules = list(path.rglob("*.py"))
        return frozenset({module.stem for module in modules}).union(*map(defined, modules))
    if path.suffix != ".py":
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    labels = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    members = {f"{owner.name}.{name}" for owner in classes for name in _names(owner)}
    return frozenset({*_names(tree), *members, *labels})


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def is_defined(symbol: str, block: Block) -> bool:
    if symbol.startswith("holdfast."):
        return _is_module(symbol.split(".")[1:])
    files = [path for name in block.paths for path in located(name)] or [SOURCES, ROOT / "tests"]
    name = symbol if symbol[0].isupper() else symbol.rpartition(".")[2]
    return any(name in defined(path) for path in files)


def _is_module(parts: list[str]) -> bool:
    path = SOURCES.joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_the_page_names_exists(page: Path) -> None:
    assert [name for block in blocks(page) for name in block.paths if not located(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_symbol_that_the_page_names_is_defined_in_the_files_beside_it(page: Path) -> None:
    undefined = [(name, block.text) for block in blocks(page) for name in block.symbols if not is_defined(name, block)]
    assert undefined == []


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_every_step_of_a_walk_names_a_file_and_what_to_look_at_in_it(page: Path) -> None:
    steps = [block for block in blocks(page) if block.is_step]
    assert [int(step.text.partition(".")[0]) for step in steps] == list(range(1, len(steps) + 1))
    assert len(steps) >= 10
    assert [step.text for step in steps if not (step.paths and step.symbols)] == []


@pytest.mark.parametrize("page", WALKS, ids=lambda page: page.stem)
def test_every_fault_of_a_step_is_named_in_one_of_its_files(page: Path) -> None:
    missing = []
    for step in filter(lambda block: block.is_step, blocks(page)):
        texts = "".join(path.read_text(encoding="utf-8") for name in step.paths for path in located(name))
        known = set(re.findall(_FAULT, texts))
        missing += [(fault, step.text) for fault in re.findall(_FAULT, step.text) if fault not in known]
    assert missing == []


def test_the_map_names_every_room_and_every_package() -> None:
    folders = {path.parent.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py")} - {"."}
    named = {name.rstrip("/") for block in blocks(FOLDER / "index.md") for name in block.paths}
    assert sorted({*folders, "tests", "bench", "deploy", "tools"} - named) == []


def test_the_map_links_every_walk() -> None:
    assert len(WALKS) == 5
    assert [page.name for page in WALKS if f"({page.name})" not in INDEX] == []


def test_the_map_has_the_layers_of_import_linter() -> None:
    contracts = repository.pyproject()["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["containers"] == ["holdfast"])
    assert f"`{' → '.join(re.sub('[()]', '', layer) for layer in layers)}`" in INDEX
