"""Which etcd is used, and what is said of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.embedded import binary
from holdfast.store.embedded.binary import NoEtcd
from tools import find_etcd


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
def test_an_old_etcd_is_skipped_with_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = etcd(tmp_path / "old folder", "3.3.25"), etcd(tmp_path / "new", "3.5.16")
    monkeypatch.setenv("PATH", f"{old.parent}:{new.parent}:/usr/bin:/bin")
    assert find_etcd.find() == new
    told = capsys.readouterr().err.splitlines()
    assert told == [f"{old}: etcd 3.3.25 is too old; use 3.4.22 or newer; looking further."]


@pytest.mark.usefixtures("nothing_else")
def test_an_etcd_that_was_named_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named, other = etcd(tmp_path / "named", "3.5.16"), etcd(tmp_path / "other", "3.5.16")
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    monkeypatch.setenv("HOLDFAST_ETCD", str(named))
    assert find_etcd.find() == named


def refuse(_scratch: Path) -> Path:
    raise NoEtcd("this is not a Debian family")


@pytest.mark.usefixtures("nothing_else")
def test_without_a_package_the_demonstration_etcd_comes_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched = etcd(tmp_path / "fetched", "3.5.1")
    monkeypatch.setattr(find_etcd, "fetch_package", refuse)
    monkeypatch.setattr(find_etcd, "FETCHED", fetched)
    assert find_etcd.fetch(only_dependable=False) == fetched
    assert "FOR TRYING OUT ONLY" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_else")
def test_tests_do_not_use_the_demonstration_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_etcd, "fetch_package", refuse)
    with pytest.raises(NoEtcd, match=r"not a Debian family.*install etcd 3\.4\.22 or newer"):
        find_etcd.fetch(only_dependable=True)


@pytest.mark.usefixtures("nothing_else")
def test_a_downloaded_etcd_is_kept_where_holdfast_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / ".tools" / "usr" / "bin" / "etcd"
    monkeypatch.setattr(find_etcd, "FETCHED", place)
    monkeypatch.setenv("PATH", "")
    assert find_etcd.keep(etcd(tmp_path / "unpacked", "3.4.23")) == place
    assert find_etcd.find() == place
    assert find_etcd.FETCHED.relative_to(tmp_path) in binary.PLACES
