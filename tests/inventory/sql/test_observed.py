"""Observed state in the database: read in pages, written under the fence, on both databases."""

from __future__ import annotations

import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert

from holdfast.inventory.api import DatabaseAway, Fence, ObservedRow
from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.fence import fenced
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.inventory.sql.schema import OBSERVED
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.host import HOST
from holdfast.store.api import Deposed
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.real.processes import wait_until
from tests.inventory.harness import REGION, endpoint, endpoint_key, host, is_waiting

OLD, NEW = Fence("no-region", 1, 70), Fence("no-region", 1, 83)
AT = datetime(2026, 11, 15, 3, 12, 44, tzinfo=UTC)


@pytest.fixture
def observed(engine: Engine) -> SqlObserved:
    SqlInventory(engine).raise_fence(OLD)
    return SqlObserved(engine)


def rows(observed: SqlObserved, prefix: bytes = b"/a/") -> dict[bytes, bytes]:
    return {seen.key: seen.doc for seen in observed.read("agent", prefix, None, 100)}


def test_a_written_row_is_read_with_its_time(observed: SqlObserved) -> None:
    observed.write(OLD, "agent", {b"{}": [b"/a/1"]}, [], AT)
    assert observed.read("agent", b"/a/", None, 10) == [ObservedRow(b"/a/1", b"{}", AT)]


def test_an_existing_row_is_replaced_and_a_gone_one_deleted(observed: SqlObserved) -> None:
    observed.write(OLD, "agent", {b"1": [b"/a/1"], b"2": [b"/a/2"], b"3": [b"/b/1"]}, [], AT)
    observed.write(OLD, "agent", {b"one": [b"/a/1"]}, [b"/a/2"], AT)
    assert rows(observed) == {b"/a/1": b"one"}
    assert rows(observed, b"/b/") == {b"/b/1": b"3"}


def test_many_rows_with_the_same_document_are_written_whether_they_exist_or_not(observed: SqlObserved) -> None:
    keys = [f"/a/{number:03}".encode() for number in range(90)]
    observed.write(OLD, "agent", {b"up": keys[:50]}, [], AT)
    later = AT + timedelta(seconds=7)
    observed.write(OLD, "agent", {b"down": keys[30:]}, [], later)
    observed.write(OLD, "agent", {b"down": [*keys[:2], *keys[3:30]], b"error": [keys[2]]}, [], later)
    assert rows(observed) == dict.fromkeys(keys, b"down") | {keys[2]: b"error"}
    assert {seen.at for seen in observed.read("agent", b"/a/", None, 100)} == {later}


def test_a_new_row_among_more_rows_than_fit_one_statement_is_written(observed: SqlObserved) -> None:
    keys = [f"/a/{number:05}".encode() for number in range(2_000)]
    observed.write(OLD, "agent", {b"up": [*keys[:950], *keys[951:]]}, [], AT)
    later = AT + timedelta(seconds=7)
    observed.write(OLD, "agent", {b"down": keys[::-1]}, [], later)
    found = observed.read("agent", b"/a/", None, 2_001)
    assert [(seen.key, seen.doc, seen.at) for seen in found] == [(key, b"down", later) for key in keys]


def test_pages_come_in_the_order_of_bytes(observed: SqlObserved) -> None:
    keys = [b"/a/\xff", b"/a/-", b"/a/A", b"/a/a"]
    observed.write(OLD, "agent", {b"": keys}, [], AT)
    first = observed.read("agent", b"/a/", None, 3)
    rest = observed.read("agent", b"/a/", first[-1].key, 3)
    assert [seen.key for seen in (*first, *rest)] == sorted(keys)


def test_a_deposed_leader_writes_nothing(observed: SqlObserved, inventory: SqlInventory) -> None:
    inventory.raise_fence(NEW)
    with pytest.raises(Deposed):
        observed.write(OLD, "agent", {b"{}": [b"/a/1"]}, [], AT)
    assert rows(observed) == {}


def test_the_wanted_endpoints_are_read_in_pages_of_keys(observed: SqlObserved, editor: Editor) -> None:
    editor.change([host(1), *map(endpoint, range(5))], who="alice")
    prefix = ENDPOINT.prefix(REGION)
    first = observed.wanted(prefix, None, 3)
    assert [*first, *observed.wanted(prefix, first[-1], 3)] == sorted(map(endpoint_key, range(5)))


def test_hosts_of_another_region_are_not_ours(observed: SqlObserved, editor: Editor, engine: Engine) -> None:
    editor.change([host(1), host(2)], who="alice")
    there = Region("ams")
    theirs = host(3).thing
    assert theirs is not None
    Editor(engine, there).change([wanted(HOST, there, "r3", theirs)], who="alice")
    assert sorted(observed.hosts("")) == ["r1", "r2"]
    assert observed.hosts("ams") == ["r3"]


def test_changes_since_a_revision_name_the_keys_before_and_after(observed: SqlObserved, editor: Editor) -> None:
    editor.change([host(1), host(2), endpoint(1), endpoint(2), endpoint(3)], who="alice")
    before = observed.changed_since("endpoint", 0).newest
    editor.change([endpoint(1, on="r2"), WantedObject(ENDPOINT, "holdfast-w2-eth0"), host(1, last=9)], who="alice")
    touched = observed.changed_since("endpoint", before)
    assert touched.present == {endpoint_key(1, on="r2")}
    assert touched.gone == {endpoint_key(1), endpoint_key(2)}
    assert touched.newest == observed.newest() > before
    assert observed.changed_since("host", before).present == {HOST.key(REGION, "r1")}
    assert observed.changed_since("endpoint", touched.newest).present == set()


def test_rows_of_another_kind_under_the_same_prefix_are_not_read(observed: SqlObserved) -> None:
    observed.write(OLD, "agent", {b"1": [b"/a/1"]}, [], AT)
    observed.write(OLD, "endpoint", {b"2": [b"/a/2"]}, [], AT)
    assert rows(observed) == {b"/a/1": b"1"}


def test_a_database_file_that_ends_early_raises_database_away(tmp_path: Path) -> None:
    address = tmp_path / "inventory.db"
    with fresh_engine(f"sqlite:///{address}") as engine:
        SqlInventory(engine).raise_fence(OLD)
        SqlObserved(engine).write(OLD, "agent", {b"{}" * 50: [b"/a/%d" % one for one in range(1_000)]}, [], AT)
        engine.dispose()
        with contextlib.closing(sqlite3.connect(address)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (size,) = file.execute("PRAGMA page_size").fetchone()
        content = bytearray(address.read_bytes())
        broken = content.index(b"/a/500") // size
        content[broken * size : (broken + 1) * size] = bytes([255]) * size
        address.write_bytes(content)
        with pytest.raises(DatabaseAway, match="malformed"):
            SqlObserved(engine).read("agent", b"/a/", None, 1_000)


def test_settled_rows_are_those_asked_for(observed: SqlObserved) -> None:
    observed.write(OLD, "agent", {b"1": [b"/a/1", b"/a/2"]}, [], AT)
    assert observed.read_settled(OLD, [b"/a/2", b"/a/3"]) == [ObservedRow(b"/a/2", b"1", AT)]


def test_settled_rows_are_not_read_for_a_term_that_is_over(observed: SqlObserved) -> None:
    SqlInventory(observed.engine).raise_fence(NEW)
    with pytest.raises(Deposed):
        observed.read_settled(OLD, [b"/a/1"])


def test_settled_rows_wait_for_a_commit_that_is_under_way(postgres_engine: Engine) -> None:
    """C47: the connection broke, and the database has not carried out the commit yet."""
    SqlInventory(postgres_engine).raise_fence(OLD)
    observed = SqlObserved(postgres_engine)
    with ThreadPoolExecutor(1) as pool:
        with fenced(postgres_engine, OLD) as connection:
            connection.execute(insert(OBSERVED).values(key=b"/a/1", kind="agent", doc=b"1", at=AT))
            reading = pool.submit(observed.read_settled, OLD, [b"/a/1"])
            wait_until(lambda: is_waiting(postgres_engine), "the reader waits for the open transaction")
            assert not reading.done()
        assert reading.result(30) == [ObservedRow(b"/a/1", b"1", AT)]
