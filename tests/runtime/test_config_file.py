"""Finding and reading the configuration file, and reading secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.config import ConfigRejected, Loaded
from holdfast.model.base.time import Duration, Instant
from holdfast.runtime import config_file
from holdfast.runtime.config_file import SETTLING, FileChanges, SecretRefused, file_path, load, read_secret, secret_file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.yaml"
    path.write_text("log:\n  level: debug\n")
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("hunter2\n")
    path.chmod(0o640)
    return path


def unreadable(result: Loaded | ConfigRejected) -> str:
    assert isinstance(result, ConfigRejected)
    assert result.unreadable
    return str(result)


def level(result: Loaded | ConfigRejected) -> str:
    assert isinstance(result, Loaded), str(result)
    return result.config.log.level


def test_a_named_file_is_read(file: Path) -> None:
    assert level(load(str(file), {})) == "debug"


def test_the_environment_can_name_the_file(file: Path) -> None:
    assert level(load(None, {"HOLDFAST_CONFIG": str(file)})) == "debug"


def test_a_path_goes_before_the_environment(file: Path) -> None:
    assert level(load(str(file), {"HOLDFAST_CONFIG": "/nowhere"})) == "debug"


def test_the_default_file_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "DEFAULT_FILE", str(file))
    assert level(load(None, {})) == "debug"


def test_the_default_file_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "DEFAULT_FILE", str(tmp_path / "none.yaml"))
    result = load(None, {})
    assert level(result) == "info"
    assert isinstance(result, Loaded)
    assert result.file is None


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.yaml")
    assert unreadable(load(missing, {})) == f"{missing}: cannot be read: No such file or directory"
    assert (
        unreadable(load(None, {"HOLDFAST_CONFIG": missing})) == f"{missing}: cannot be read: No such file or directory"
    )


@pytest.mark.parametrize("name", ["/dev/null", "/", "a\0b"])
def test_what_is_not_a_file_is_said_to_be_unreadable(name: str) -> None:
    assert "cannot be read: " in unreadable(load(name, {}))


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert unreadable(load(str(tmp_path / "pipe"), {})).endswith("cannot be read: it is not a regular file")


def test_a_huge_file_makes_no_sense(tmp_path: Path) -> None:
    (tmp_path / "huge").write_bytes(b"#" * 1_000_000)
    result = load(str(tmp_path / "huge"), {})
    assert isinstance(result, ConfigRejected)
    assert not result.unreadable
    assert str(result).endswith("is larger than 256 KiB, which no configuration needs")


def test_a_refused_file_leaves_no_descriptor_open(tmp_path: Path) -> None:
    load(str(tmp_path), {})
    opened = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.exists()]
    assert opened
    assert str(tmp_path) not in opened


def test_a_secret_is_read_without_its_line_break(secret: Path) -> None:
    assert read_secret(str(secret), {}) == "hunter2"


def test_a_secret_that_everybody_can_read_is_refused(secret: Path) -> None:
    secret.chmod(0o644)
    with pytest.raises(
        SecretRefused, match=f"{secret} is accessible to every user of this machine: run chmod o= {secret}"
    ):
        read_secret(str(secret), {})


def test_a_key_that_everybody_can_read_is_refused(secret: Path) -> None:
    secret.chmod(0o604)
    with pytest.raises(SecretRefused, match="is accessible to every user"):
        secret_file(str(secret), {})


def test_a_key_that_is_kept_well_is_given_by_its_path(secret: Path) -> None:
    assert secret_file(str(secret), {}) == secret


def test_a_credential_is_found_in_the_folder_that_systemd_made(secret: Path) -> None:
    environ = {"CREDENTIALS_DIRECTORY": str(secret.parent)}
    assert read_secret("credential:password", environ) == "hunter2"
    assert file_path("credential:password", environ) == secret


def test_a_credential_without_systemd_is_refused_with_what_to_do() -> None:
    with pytest.raises(SecretRefused, match="add LoadCredential=password:… to its unit"):
        read_secret("credential:password", {})


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "is empty"), (b"\n", "is empty"), (b"\xff", "is not text"), (b"x" * 70_000, "is larger than 64 KiB")],
)
def test_a_file_that_holds_no_secret_is_refused(secret: Path, content: bytes, sentence: str) -> None:
    secret.write_bytes(content)
    with pytest.raises(SecretRefused, match=f"{secret} {sentence}"):
        read_secret(str(secret), {})


def test_a_missing_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretRefused, match="cannot be read: No such file or directory"):
        read_secret(str(tmp_path / "none"), {})


def part(file: Path, name: str, backend: str = "a") -> Path:
    folder = file.parent / "balancer.d"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"balancer: {{backends: {{{backend}: {{address: 10.0.0.1}}}}}}\n")
    return folder / name


def test_files_of_the_folder_are_read_in_the_order_of_their_names_and_others_skipped(file: Path) -> None:
    for name in ("20-b.yaml", "10-a.yaml", ".hidden.yaml", "10-a.yaml~", "README"):
        part(file, name, backend=name.strip(".").replace("~", "-").replace(".", "-"))
    result = load(str(file), {})
    assert isinstance(result, Loaded), str(result)
    assert list(result.config.balancer.backends) == ["10-a-yaml", "20-b-yaml"]
    assert result.parts == 2


def test_a_name_in_two_files_names_both(file: Path) -> None:
    first, second = part(file, "1.yaml"), part(file, "2.yaml")
    assert str(load(str(file), {})) == (
        f"{second}:1:23: balancer.backends.a: is defined in {first}:1 already: remove one"
    )


def test_a_file_that_only_looks_like_a_part_is_not_skipped_in_silence(file: Path) -> None:
    wrong = part(file, "shop.yml")
    assert str(load(str(file), {})) == f"{wrong}: is not read, because its name does not end in .yaml: rename it"


def test_a_part_that_cannot_be_read_makes_the_whole_unreadable(file: Path) -> None:
    (file.parent / "balancer.d" / "1.yaml").mkdir(parents=True)
    assert unreadable(load(str(file), {})).endswith("balancer.d/1.yaml: cannot be read: it is not a regular file")


def test_a_change_is_noticed_once_and_only_when_it_has_settled(file: Path) -> None:
    changes, now = FileChanges(str(file), {}), Instant(10**12)
    assert not changes.settled(now)
    part(file, "1.yaml")
    assert not changes.settled(now)
    part(file, "2.yaml", backend="b")
    assert not changes.settled(now + SETTLING), "another file has changed meanwhile"
    assert not changes.settled(now + SETTLING * 2 - Duration(microseconds=1))
    assert changes.settled(now + SETTLING * 2)
    assert not changes.settled(now + SETTLING * 9)
    (file.parent / "balancer.d" / "1.yaml").unlink()
    assert not changes.settled(now + SETTLING * 10)
    assert changes.settled(now + SETTLING * 11)
