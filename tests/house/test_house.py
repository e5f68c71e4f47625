"""The repository agrees with itself: rooms, version, fault ids, and the sum of what was skipped."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import holdfast
from tests.house import repository


def test_every_room_has_its_place_in_the_layers() -> None:
    contracts = repository.pyproject()["tool"]["importlinter"]["contracts"]
    layers = next(contract for contract in contracts if contract["type"] == "layers")
    placed = set(re.findall(r"\w+", " ".join(layers["layers"]))) | set(layers["exhaustive_ignores"])
    rooms = {init.parent.name for init in (repository.ROOT / "src" / "holdfast").glob("*/__init__.py")}
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
