"""Commands on objects in a folder with a lab: its inventory is used only by its owner, and without configuration."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.testing.fault import fault

USED = "using the lab in .holdfast"


@pytest.fixture
def lab() -> Path:
    """Return the database of a lab in the working folder."""
    database = Path(".holdfast/state/inventory.db")
    database.parent.mkdir(parents=True)
    Path(".holdfast/run").mkdir()
    made = CliRunner().invoke(main, ["inventory", "init", "--set", f"inventory.database=sqlite:///{database}"])
    assert made.exit_code == 0, made.output
    return database


def get_hosts(**environment: str) -> Result:
    return CliRunner().invoke(main, ["get", "hosts"], env=environment)


def test_the_inventory_of_the_lab_is_read_without_a_setting(lab: Path) -> None:
    found = get_hosts()

    assert found.exit_code == 0, found.output
    assert USED in found.stderr
    assert USED not in found.stdout


@pytest.mark.parametrize("linked", [".holdfast", ".holdfast/state", ".holdfast/state/inventory.db"])
def test_c59_a_lab_behind_a_link_is_not_used(lab: Path, linked: str) -> None:
    Path(linked).rename("elsewhere")
    Path(linked).symlink_to(Path("elsewhere").absolute())

    found = get_hosts()

    assert found.exit_code == 1
    assert "no inventory is configured: set inventory.database" in found.stderr


def test_c59_a_lab_of_another_user_is_not_used(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = os.getuid()
    monkeypatch.setattr("holdfast.cli.common.own_lab.os.getuid", lambda: owner + 1)

    assert "no inventory is configured: set inventory.database" in get_hosts().stderr


def test_c59_a_lab_is_not_used_with_configured_credentials(lab: Path) -> None:
    secret = Path("password")
    secret.touch(0o600)
    secret.write_text("secret\n", encoding="ascii")

    found = get_hosts(HOLDFAST_STORE_USER="operator", HOLDFAST_STORE_PASSWORD_FILE=str(secret.absolute()))

    assert found.exit_code == 1, found.output
    assert "no inventory is configured: set inventory.database" in found.stderr


def credentials() -> dict[str, str]:
    secret = Path("password")
    secret.touch(0o600)
    secret.write_text("secret\n", encoding="ascii")
    return {"HOLDFAST_STORE_USER": "operator", "HOLDFAST_STORE_PASSWORD_FILE": str(secret.absolute())}


class Taken:
    """An etcd of a lab that keeps what it is sent."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(0.2)
        self.port = self._server.getsockname()[1]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Taken:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._server.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                peer, _ = self._server.accept()
                with peer:
                    peer.settimeout(2)
                    self.requests.append(peer.recv(65_536))


@fault(
    "C59",
    without="holdfast.cli.common.lab_inventory:names_a_fleet",
    returns=False,
    sees=(AssertionError, r"etcd.requests == \[\]"),
)
def test_C59_the_etcd_of_a_lab_is_never_sent_the_configured_password(lab: Path) -> None:
    with Taken() as etcd:
        Path(".holdfast/state/etcd").mkdir()
        Path(".holdfast/state/etcd/port").write_text(str(etcd.port), encoding="ascii")
        CliRunner().invoke(main, ["leader"], env=credentials())
    assert etcd.requests == []


@fault(
    "C59",
    without="holdfast.cli.common.own_lab:is_own",
    returns=True,
    sees=(AssertionError, 'f"no Holdfast daemon is running in'),
)
@pytest.mark.parametrize("linked", [".holdfast", ".holdfast/run"])
def test_C59_the_sockets_behind_a_link_are_not_asked(linked: str) -> None:
    Path("elsewhere/run").mkdir(parents=True)
    Path("elsewhere/run/server.sock").touch()
    if linked == ".holdfast/run":
        Path(".holdfast").mkdir()
    Path(linked).symlink_to(Path("elsewhere", *Path(linked).parts[1:]).absolute())
    environment = {"HOLDFAST_PATHS_RUNTIME": str(Path("nowhere").absolute())}

    shown = CliRunner().invoke(main, ["status"], env=environment)

    assert f"no Holdfast daemon is running in {Path('nowhere').absolute()}" in shown.stderr


def test_a_named_lab_must_be_a_lab_of_the_caller() -> None:
    Path("other").mkdir()
    refused = CliRunner().invoke(main, ["--lab", "other", "status"])
    assert "other is no lab of this user" in refused.stderr


def test_a_named_lab_is_used(lab: Path) -> None:
    Path(".holdfast").rename("demo")
    found = CliRunner().invoke(main, ["--lab", "demo", "get", "hosts"])
    assert found.exit_code == 0, found.output
    assert "using the lab in demo" in found.stderr


def test_a_named_lab_and_a_configured_fleet_exclude_each_other(lab: Path) -> None:
    found = CliRunner().invoke(main, ["--lab", ".holdfast", "get", "hosts"], env=credentials())
    assert "leave one of them out" in found.stderr


@pytest.mark.parametrize("command", ["status", "history"])
def test_a_broken_configuration_does_not_stop_diagnosis(command: str, tmp_path: Path) -> None:
    broken = tmp_path / "holdfast.yaml"
    broken.write_text("nonsense: [", encoding="utf-8")
    shown = CliRunner().invoke(main, [command], env={"HOLDFAST_CONFIG": str(broken)})
    assert "warning: the configuration cannot be used" in shown.stderr
    assert shown.exit_code == 3
