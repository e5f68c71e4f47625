"""Scenes of the inventory: the database is emptied, or unreachable. The promises are about the store.

The damage is done to the lab's own database without recording a change, and undone at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Engine, insert, select, text

from holdfast.inventory.changes import wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.schema import OBJECTS
from holdfast.lab.fleet import layout
from holdfast.lab.scenes.stage import CLOCK, PATIENCE, Lab, Say, Scene, limit_s, obtain, promise, until
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.fleet.network import NETWORK, Network
from holdfast.runtime.daemon.board import BoardError
from holdfast.runtime.daemon.report import report

REGION = Region()
MAX_OUTAGE_S = 10.0
"""The database is unreachable no longer than this, whatever --seconds says."""


async def database_emptied(lab: Lab, say: Say, seconds: float) -> None:
    """Delete every object from the database, without a record of the deletion."""
    with lab.database() as engine:
        before = await _settled(lab, SqlInventory(engine))
        async with _without_objects(engine) as rows:
            say(f"emptied the database: {len(rows):,} objects deleted, no deletion recorded")
            await _syncer(lab, "sync")
            took = await until("the syncer to hold the deletes", lambda: _state(lab) == "held: witness")
            held = await _syncer(lab, "held")
            say(f"the syncer holds {held['total']:,} deletes after {took.total_seconds():.2f} s:")
            for line in _held(held["objects"]):
                say(line)
            promise(await _stored(lab) == before, "an emptied database deletes nothing from the store")
            say(f"{len(before):,} of {len(before):,} objects are still in the store")
        await _syncer(lab, "sync")
        back = await until("the syncer to find no difference", lambda: _state(lab) == "ok")
        say(f"restored the rows; the syncer is ok after {back.total_seconds():.2f} s, and has written nothing")
        promise(await _stored(lab) == before, "an object that was held and is wanted again was never touched")


async def database_unreachable(lab: Lab, say: Say, seconds: float) -> None:
    """Make every query to the database fail for up to 10 s."""
    with lab.database() as engine:
        inventory = SqlInventory(engine)
        before, running = await _settled(lab, inventory), _processes(lab)
        began = CLOCK.now()
        async with _without_tables(engine):
            say("made the database unreachable: every query fails")
            took = await until("the syncer to wait for the database", lambda: _state(lab) == "waiting: database")
            say(f"the syncer reports “waiting: database” after {took.total_seconds():.2f} s")
            await asyncio.sleep(max(0.0, min(seconds, MAX_OUTAGE_S) - (CLOCK.now() - began).total_seconds()))
            promise(await _stored(lab) == before, "the store keeps the last known state while the database is away")
        outage = CLOCK.now() - began
        back = await until("the syncer to recover", lambda: _state(lab) == "ok")
        say(
            f"the database was unreachable for {outage.total_seconds():.0f} s; the syncer recovered "
            f"{back.total_seconds():.2f} s later"
        )
        arrived = await _time_to_store(lab, Editor(engine, REGION))
        say(f"a change made now is in the store after {arrived.total_seconds():.2f} s")
        promise(_processes(lab) >= running, "no server process restarts because the database is unreachable")
        await _settled(lab, inventory)  # that change was undone, which has to reach the store too


@contextlib.asynccontextmanager
async def _without_objects(engine: Engine) -> AsyncIterator[Sequence[dict[str, Any]]]:
    with engine.begin() as connection:
        rows = [dict(row._mapping) for row in connection.execute(select(OBJECTS))]
        connection.execute(OBJECTS.delete())
    try:
        yield rows
    finally:
        with engine.begin() as connection:
            connection.execute(insert(OBJECTS), rows)


@contextlib.asynccontextmanager
async def _without_tables(engine: Engine) -> AsyncIterator[None]:
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE outbox RENAME TO outbox_away"))
    try:
        yield
    finally:
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE outbox_away RENAME TO outbox"))


def _held(objects: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield each reason once, then each command that releases it."""
    yield from dict.fromkeys(f"  {one['reason']}" for one in objects if one["gate"])
    yield from dict.fromkeys(f"  To release: {one['opens']}" for one in objects if one["gate"])


async def _settled(lab: Lab, inventory: SqlInventory) -> Mapping[bytes, bytes]:
    """Wait until no change is on its way to the store, and return what the store has of the inventory."""

    async def is_settled() -> bool:
        await lab.release_brake()
        return _state(lab) == "ok" and not inventory.waiting()

    await until("the syncer to be ok", is_settled)
    return await _stored(lab)


async def _stored(lab: Lab) -> Mapping[bytes, bytes]:
    async with lab.store() as store:
        found: dict[bytes, bytes] = {}
        for kind in KINDS:
            async for page in store.list(kind.prefix(REGION)):
                found |= {entry.key: entry.value for entry in page.entries}
    return found


async def _time_to_store(lab: Lab, editor: Editor) -> Duration:
    """Measure how long a change takes from the database to the store, and undo it."""
    change = wanted(NETWORK, REGION, "scene", Network(prefixes=("198.51.100.0/24",)))
    editor.change([change], who="lab", why="database-unreachable")
    try:
        async with lab.store() as store:
            return await until("a change to reach the store", lambda: store.get(change.key))
    finally:
        editor.undo(NETWORK, "scene", who="lab")


def _state(lab: Lab) -> str:
    """Return the state that the leader's syncer shows; empty while there is none."""
    leader = lab.leader()
    if leader is None:
        return ""
    try:
        shown = report(lab.board(leader[0]), "server", "", CLOCK.now())
    except BoardError:
        return ""
    return next((worker.state for worker in shown.workers if worker.name == "syncer"), "")


async def _syncer(lab: Lab, command: str) -> Any:
    """Send a command to the leader's syncer; leadership may change at any time, so it tries again."""

    async def read() -> Any:
        leader = lab.leader()
        answer = await lab.ask(f"{leader[0]}/server", "syncer", command) if leader else None
        return None if answer is None or answer.error else (answer.result,)

    (result,) = await obtain("an answer from the leader's syncer", read)
    return result


def _processes(lab: Lab) -> set[int]:
    return {pid for server in layout.SERVERS for pid in lab.tree(server)}


SCENES: Mapping[str, Scene] = {
    "database-emptied": Scene(
        database_emptied,
        promise="an emptied database deletes nothing from the store, and its syncer says how to release that",
        limit=f"0 of all objects in the store change; held within {limit_s(PATIENCE)}",
    ),
    "database-unreachable": Scene(
        database_unreachable,
        promise="the store keeps the last known state while the database is away, and no server restarts",
        limit=f"an outage of {MAX_OUTAGE_S:g} s at most; 0 changes in the store, 0 restarts",
    ),
}
