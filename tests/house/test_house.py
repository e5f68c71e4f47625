"""The repository agrees with itself: rooms, names, docstrings, version, fault ids, and the summary of skipped tests."""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import holdfast
from tests.house import repository

SOURCES = repository.ROOT / "src" / "holdfast"
QUESTION = re.compile(r"(What|Whether|Who|Whose|That which|How)\b")


@functools.cache
def modules() -> Sequence[tuple[str, ast.Module]]:
    paths = sorted(SOURCES.rglob("*.py"))
    return [(str(path.relative_to(SOURCES)), ast.parse(path.read_text(encoding="utf-8"))) for path in paths]


def test_a_public_class_name_means_one_thing() -> None:
    defined = defaultdict(list)
    for path, module in modules():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined[node.name].append(path)
    assert {name: paths for name, paths in defined.items() if len(paths) > 1} == {}


def test_no_docstring_opens_with_a_question() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [
        (path, docstring.partition("\n")[0])
        for path, module in modules()
        for node in ast.walk(module)
        if isinstance(node, documented) and (docstring := ast.get_docstring(node)) and QUESTION.match(docstring)
    ]
    assert found == []


def test_log_levels_are_named() -> None:
    numeric = [
        (path, node.lineno)
        for path, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "log.log"
    ]
    assert numeric == []


def test_log_events_are_constant_texts() -> None:
    methods = {f"log.{level}" for level in ("debug", "info", "warning", "error", "exception")}
    varying = [
        (path, node.lineno, ast.unparse(node))
        for path, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in methods
        and not (node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str))
    ]
    assert varying == []


def test_every_room_has_its_place_in_the_layers() -> None:
    contracts = repository.pyproject()["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract.get("containers") == ["holdfast"])
    placed = set(re.findall(r"\w+", " ".join(layers["layers"]))) | set(layers["exhaustive_ignores"])
    rooms = {init.parent.name for init in SOURCES.glob("*/__init__.py")}
    assert rooms <= placed


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    newest = re.search(r"^## \[(.+?)\]", repository.text("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == holdfast.__version__


def test_every_fault_that_a_test_names_is_a_row_of_the_matrix() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \|", repository.text("docs/faults.md"), re.MULTILINE)
    assert len(rows) == len(set(rows))
    for path in (repository.ROOT / "tests").rglob("*.py"):
        calls = re.findall(r"@fault\(([^)]*?)without", path.read_text(encoding="utf-8"))
        assert set(re.findall(r"[A-Z]\d+", " ".join(calls))) <= set(rows), path


def test_every_page_that_the_readme_points_to_is_there() -> None:
    pointed = re.findall(r"\]\(([^)#:]+)\)", repository.text("README.md"))
    assert pointed
    assert [name for name in pointed if not (repository.ROOT / name).is_file()] == []


def test_skips_are_summed_up_by_reason_at_the_end(tmp_path: Path) -> None:
    shutil.copy(repository.ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_some.py").write_text(
        "import pytest\n\n"
        "@pytest.mark.parametrize('i', range(3))\n"
        "@pytest.mark.skipif(True, reason='needs root')\n"
        "def test_a(i): pass\n\n"
        "def test_b(): pytest.skip('needs nft')\n\ndef test_c(): pass\n"
    )
    run = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    told = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert "not run here: 4" in told
    assert re.search(r"3 × needs root\n +1 × needs nft\n", told)
