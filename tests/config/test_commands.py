"""`holdfast config check` and `show`: data on stdout, messages on stderr, stable exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.config import config
from holdfast.runtime import config_file


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a configuration file and without variables of ours."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(config_file, "DEFAULT_FILE", str(tmp_path / "default.yaml"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "holdfast.yaml"
    path.write_text("log:\n  level: debug\nstore:\n  user: fleet\n  password_file: /etc/holdfast/password\n")
    return path


def run(*arguments: object, **environ: str) -> Result:
    return CliRunner().invoke(config, [str(argument) for argument in arguments], env=environ)


def test_a_good_file_checks_with_0(file: Path) -> None:
    result = run("check", file)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", f"{file} is valid.\n")


def test_no_file_at_all_checks_with_0() -> None:
    result = run("check")
    assert result.exit_code == 0
    assert "the configuration without it is valid" in result.stderr


def test_a_file_that_cannot_be_read_checks_with_3(tmp_path: Path) -> None:
    result = run("check", tmp_path / "none")
    assert (result.exit_code, result.stderr) == (3, f"{tmp_path}/none: cannot be read: No such file or directory\n")


def test_an_invalid_file_checks_with_1_and_all_problems(file: Path) -> None:
    file.write_text("log:\n  level: loud\n  colour: red\n")
    result = run("check", file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"{file}:2:10: log.level: is 'loud': write debug, info, warning or error\n"
        f"{file}:3:3: log.colour: is not a known field\n"
    )


def test_the_environment_is_checked_as_well(file: Path) -> None:
    result = run("check", file, HOLDFAST_LOG_LEVEL="loud")
    assert result.exit_code == 1
    assert result.stderr.startswith("environment HOLDFAST_LOG_LEVEL: log.level: ")


def test_a_file_named_twice_is_refused(file: Path) -> None:
    assert run("check", file, "--config", file).exit_code == 2


def test_the_configuration_in_effect_is_shown_with_origins(file: Path) -> None:
    result = run("show", "--origin", "--config", file, "--set", "log.format=json", HOLDFAST_STORE_REGION="ams")
    assert result.exit_code == 0
    rows = [line.split(maxsplit=2) for line in result.stdout.splitlines()]
    assert ["log.level", "debug", f"{file}:2"] in rows
    assert ["log.format", "json", "flag --set log.format"] in rows
    assert ["store.region", '"ams"', "environment HOLDFAST_STORE_REGION"] in rows
    assert ["paths.state", '"/var/lib/holdfast"', "default"] in rows


def test_the_configuration_is_shown_as_yaml_that_checks(file: Path, tmp_path: Path) -> None:
    (tmp_path / "shown.yaml").write_text(run("show", "-o", "yaml", "--config", file).stdout)
    assert run("check", tmp_path / "shown.yaml").exit_code == 0


def test_the_configuration_is_shown_as_json(file: Path) -> None:
    assert json.loads(run("show", "-o", "json", "--config", file).stdout)["log"]["level"] == "debug"


def test_a_secret_is_never_shown(file: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    file.write_text(f"store:\n  user: fleet\n  password_file: {tmp_path}/password\n")
    for form in ("table", "yaml", "json"):
        result = run("show", "--origin", "-o", form, "--config", file)
        assert f"{tmp_path}/password" in result.stdout
        assert "hunter2" not in result.output


def test_a_wrong_configuration_is_not_shown(file: Path) -> None:
    result = run("show", "--config", file, "--set", "log.level=loud")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("flag --set log.level: log.level: is 'loud'")


def test_a_setting_without_a_value_is_refused_with_an_example() -> None:
    result = run("show", "--set", "log.level")
    assert result.exit_code == 2
    assert "such as log.level=debug" in result.stderr


def test_a_client_certificate_that_cannot_be_used_checks_with_1_and_names_the_line(tmp_path: Path) -> None:
    file, key = tmp_path / "holdfast.yaml", tmp_path / "key.pem"
    key.touch(mode=0o600)
    file.write_text(
        "balancer:\n  healthchecks:\n    web:\n      type: https\n"
        f"      cert-file: {tmp_path}/none.pem\n      key-file: {key}\n"
        f"    api:\n      type: http\n      header-files: 'Authorization: {tmp_path}/token'\n"
    )
    result = run("check", file)
    assert result.exit_code == 1
    assert result.stderr == (
        f"{file}:5:7: balancer.healthchecks.web.cert_file: cannot be used: No such file or directory\n"
        f"{file}:9:7: balancer.healthchecks.api.header_files: cannot be used: {tmp_path}/token cannot be read: "
        "No such file or directory\n"
    )
    assert run("show", "--config", file).exit_code == 0, "only a check looks at the files"


def test_a_credential_is_not_judged_outside_of_its_unit(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text(
        "balancer:\n  healthchecks:\n    api: {type: http, header-files: 'Authorization: credential:probe'}\n"
    )
    assert run("check", file).exit_code == 0
    result = run("check", file, CREDENTIALS_DIRECTORY=str(tmp_path))
    assert result.exit_code == 1
    assert f"{tmp_path}/probe cannot be read" in result.stderr


def test_a_warning_is_printed_and_the_configuration_is_valid(tmp_path: Path) -> None:
    members = ", ".join(f"b{number}: " for number in range(11))
    backends = ", ".join(f"b{number}: {{address: 10.0.0.{number}}}" for number in range(11))
    frontend = f"{{address: 192.0.2.1, table-size: 1021, pools: [{{backends: {{{members}}}}}]}}"
    file = tmp_path / "balancer.yaml"
    file.write_text(f"balancer: {{backends: {{{backends}}}, frontends: {{www: {frontend}}}}}")
    result = run("check", file)
    assert result.exit_code == 0
    assert "warning: " in result.stderr
    assert "gives 1,021 buckets to 11 backends of a pool" in result.stderr
    assert result.stderr.endswith("is valid.\n")
