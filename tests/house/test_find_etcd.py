"""Which etcd is used, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import find_etcd


@pytest.mark.parametrize("version", [(3, 4, 22), (3, 4, 38), (3, 5, 6), (3, 5, 16), (3, 6, 0), (4, 0, 0)])
def test_these_are_dependable(version: find_etcd.Version) -> None:
    assert find_etcd.dependable(version)


@pytest.mark.parametrize("version", [(3, 3, 25), (3, 4, 21), (3, 5, 0), (3, 5, 1), (3, 5, 5)])
def test_these_are_not(version: find_etcd.Version) -> None:
    assert not find_etcd.dependable(version)


def test_the_version_is_read_from_what_etcd_prints() -> None:
    assert find_etcd.parse_version("etcd Version: 3.4.23\nGit SHA: Not provided\nGo Version: go1.19.5\n") == (3, 4, 23)


def test_something_else_called_etcd_is_refused() -> None:
    with pytest.raises(find_etcd.NoEtcd, match="does not say its version"):
        find_etcd.parse_version("usage: etcd [files]\n")


def etcd(folder: Path, version: str) -> Path:
    folder.mkdir(parents=True)
    binary = folder / "etcd"
    binary.write_text(f"#!/bin/sh\necho 'etcd Version: {version}'\n")
    binary.chmod(0o755)
    return binary


@pytest.fixture
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HOLDFAST_ETCD", raising=False)
    monkeypatch.setattr(find_etcd, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(find_etcd, "FETCHED", tmp_path / "absent")


@pytest.mark.usefixtures("nothing_else")
def test_an_old_etcd_is_passed_over_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = etcd(tmp_path / "old folder", "3.3.25"), etcd(tmp_path / "new", "3.5.16")
    monkeypatch.setenv("PATH", f"{old.parent}:{new.parent}:/usr/bin:/bin")
    assert find_etcd.find() == new
    told = capsys.readouterr().err.splitlines()
    assert told == [f"{old} is etcd 3.3.25, too old: Holdfast needs {find_etcd.NEEDED}."]


@pytest.mark.usefixtures("nothing_else")
def test_an_etcd_that_was_named_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = etcd(tmp_path / "named", "3.5.16"), etcd(tmp_path / "other", "3.5.16")
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOLDFAST_ETCD", str(named))
    assert find_etcd.find() == named


def test_the_one_for_trying_out_is_announced_loudly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find_etcd.warn_of_trying_out(etcd(tmp_path / "wheel", "3.5.1"))
    assert "FOR TRYING OUT ONLY" in capsys.readouterr().err


def test_a_dependable_one_needs_no_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    find_etcd.warn_of_trying_out(etcd(tmp_path / "package", "3.4.23"))
    assert capsys.readouterr().err == ""
