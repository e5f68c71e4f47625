"""`holdfast import maglevd FILE` as an operator runs it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from holdfast.cli import main
from tests.balancer.services.test_maglevd import FILE


def run(folder: Path, text: str) -> Result:
    file = folder / "maglev.yaml"
    file.write_text(text)
    return CliRunner().invoke(main, ["import", "maglevd", str(file)])


def test_what_is_printed_passes_config_check(tmp_path: Path) -> None:
    printed = run(tmp_path, FILE)
    assert printed.exit_code == 0
    assert "note: health check ping: is now" in printed.stderr
    ours = tmp_path / "holdfast.yaml"
    ours.write_text(printed.stdout)
    checked = CliRunner().invoke(main, ["config", "check", str(ours)])
    assert (checked.exit_code, checked.stderr) == (0, f"{ours} is valid.\n")


def test_bad_input_prints_its_lines_and_nothing_else(tmp_path: Path) -> None:
    refused = run(tmp_path, FILE.replace("rise: 4", "rize: 4"))
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert f"{tmp_path}/maglev.yaml:22:13: maglev.healthchecks.web.rize" in refused.stderr
    assert run(tmp_path, "maglev: [").exit_code == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = CliRunner().invoke(main, ["import", "maglevd", str(tmp_path / "none")])
    assert (missing.exit_code, missing.stderr) == (3, f"{tmp_path}/none: cannot be read: No such file or directory\n")
