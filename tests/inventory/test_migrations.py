"""An inventory of the first version is brought up to date with everything that is in it."""

from __future__ import annotations

from sqlalchemy import text

from holdfast.inventory.edit import Did, Editor
from holdfast.inventory.engine import database_url, open_engine
from holdfast.inventory.migrate import migrate
from holdfast.inventory.sql import SqlInventory
from holdfast.model.endpoint import ENDPOINT
from tests.inventory.things import REGION, endpoint, endpoint_name

_ROW = "INSERT INTO objects (key, kind, name, doc, revision, host) VALUES (:key, 'endpoint', :name, :doc, 1, 'r1')"


def test_objects_of_the_first_version_stay_and_are_on_no_network(address: str) -> None:
    engine = open_engine(database_url(address))
    wish = endpoint(1)
    assert wish.thing is not None
    try:
        migrate(engine, to="0001")
        with engine.begin() as connection:
            row = {"key": wish.key, "name": wish.name, "doc": ENDPOINT.encode(wish.thing)}  # type: ignore[arg-type]
            connection.execute(text(_ROW), row)
        migrate(engine)
        inventory, editor = SqlInventory(engine), Editor(engine, REGION)
        assert inventory.networks() == {"": 1}
        assert [one.name for one in editor.objects(ENDPOINT)] == [endpoint_name(1)]
        assert editor.change([wish], who="alice")[0].did is Did.UNCHANGED
    finally:
        engine.dispose()
