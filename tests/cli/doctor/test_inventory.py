"""`holdfast doctor` on the inventory: whether it answers, and which changes nobody brings to the store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine, insert, text, update

from holdfast.cli import main
from holdfast.cli.doctor import Severity
from holdfast.cli.doctor.inventory import examine
from holdfast.config.sections.inventory import InventorySettings
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import writing
from holdfast.inventory.sql.schema import CHANGES, OUTBOX
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.testing.fakes.inventory import fresh_engine
from tests.inventory.harness import REGION, endpoint


def address(folder: Path) -> str:
    return f"sqlite:///{folder}/inventory.db"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with fresh_engine(address(tmp_path)) as made:
        yield made


def said(folder: Path) -> list[tuple[Severity, str]]:
    return [(one.severity, one.sentence) for one in examine(InventorySettings(database=address(folder)), REGION)]


def test_recent_changes_count_as_on_their_way(engine: Engine, tmp_path: Path) -> None:
    Editor(engine, REGION).change([endpoint(1)], who="ada")
    assert said(tmp_path) == [(Severity.GOOD, "reachable; changes on their way to the store: 1")]


def test_a_database_is_tried_with_a_write(engine: Engine, tmp_path: Path) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE trials"))
    ((mark, sentence),) = said(tmp_path)
    assert mark is Severity.WRONG
    assert "run holdfast inventory init" in sentence


def test_changes_that_do_not_reach_the_store_are_counted(engine: Engine, tmp_path: Path) -> None:
    Editor(engine, REGION).change([endpoint(1), endpoint(2)], who="ada")
    with writing(engine) as connection:
        connection.execute(update(CHANGES).values(at=datetime.now(UTC) - timedelta(hours=5)))
    ((mark, sentence),) = said(tmp_path)
    assert mark is Severity.WRONG
    assert sentence.startswith(
        "changes that have not reached the store: 2, the oldest for 5h00m: check leader and gates"
    )


def test_changes_of_another_region_are_counted(engine: Engine, tmp_path: Path) -> None:
    with writing(engine) as connection:
        connection.execute(insert(OUTBOX).values(key=ENDPOINT.prefix(Region("fra")) + b"x"))
    (_, (mark, sentence)) = said(tmp_path)
    assert mark is Severity.WRONG
    assert sentence.startswith("changes of another region, which no server here syncs: 1, the last at /calico/")
    assert sentence.endswith("openstack-region-fra/x: use one database per region")


def test_an_unreachable_inventory_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "inventory.db").mkdir()
    ((severity, sentence),) = said(tmp_path)
    assert severity is Severity.WRONG
    assert sentence.startswith("database is unreachable: its file does not exist, or may not be opened")


def test_the_inventory_is_checked_even_if_the_store_is_unreachable(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_INVENTORY_DATABASE", address(tmp_path))
    told = CliRunner().invoke(main, ["doctor", "--endpoints", "http://127.0.0.1:1"])
    assert "ok    inventory  reachable; changes on their way to the store: 0" in told.output
    assert told.exit_code == 3
