"""Commands on objects in a folder with a lab: its inventory is used only by its owner, and without configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main

USED = "using the lab in .holdfast"


@pytest.fixture
def lab() -> Path:
    """Return the database of a lab in the working folder."""
    database = Path(".holdfast/state/inventory.db")
    database.parent.mkdir(parents=True)
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
    monkeypatch.setattr("holdfast.cli.common.lab_inventory.os.getuid", lambda: owner + 1)

    assert "no inventory is configured: set inventory.database" in get_hosts().stderr


def test_c59_a_lab_is_not_used_with_configured_credentials(lab: Path) -> None:
    secret = Path("password")
    secret.touch(0o600)
    secret.write_text("secret\n", encoding="ascii")

    found = get_hosts(HOLDFAST_STORE_USER="operator", HOLDFAST_STORE_PASSWORD_FILE=str(secret.absolute()))

    assert found.exit_code == 1, found.output
    assert "no inventory is configured: set inventory.database" in found.stderr
