"""Scenes of the inventory: a database that was emptied, and one that is away. What happens to the store is what counts.

The damage is done to the lab's own database, behind everybody's back, and taken back in the end.
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
from holdfast.lab.fleet import fleet
from holdfast.lab.scenes.stage import CLOCK, PATIENCE, Broken, Lab, Say, Scene, database_of, promise, store_of, until
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.fleet.network import NETWORK, Network
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.board import BoardError
from holdfast.runtime.daemon.report import report

REGION = Region()
AWAY_S = 10.0
"""For how long the database is away at most, however long a freeze would last."""


async def database_emptied(lab: Lab, say: Say, seconds: float) -> None:
    """Every object is deleted from the database, behind the inventory's back."""
    with database_of(lab) as engine:
        before = await _settled(lab, SqlInventory(engine))
        async with _without_objects(engine) as rows:
            say(f"emptied the database: {len(rows):,} objects gone, and nobody announced it")
            await _syncer(lab, "sync")
            took = await until("the syncer holding", lambda: _state(lab) == "held: brake")
            held = await _syncer(lab, "held")
            say(f"the syncer holds {held['total']:,} deletes after {took.total_seconds():.2f} s:")
            for line in _held(held["objects"]):
                say(line)
            promise(await _stored(lab) == before, "an emptied database deletes nothing from the store")
            say(f"{len(before):,} of {len(before):,} objects are still in the store")
        await _syncer(lab, "sync")
        back = await until("the syncer being content", lambda: _state(lab) == "ok")
        say(f"the rows are back; the syncer is content after {back.total_seconds():.2f} s, and has written nothing")
        promise(await _stored(lab) == before, "what was held and is wanted again was never touched")


async def database_away(lab: Lab, say: Say, seconds: float) -> None:
    """The database answers nobody for a while; then a change is made."""
    with database_of(lab) as engine:
        inventory = SqlInventory(engine)
        before, running = await _settled(lab, inventory), _processes(lab)
        began = CLOCK.now()
        async with _without_tables(engine):
            say("took the database away: every question to it fails now")
            took = await until("the syncer waiting", lambda: _state(lab) == "waiting: database")
            say(f"the syncer says “waiting: database” after {took.total_seconds():.2f} s")
            await asyncio.sleep(max(0.0, min(seconds, AWAY_S) - (CLOCK.now() - began).total_seconds()))
            promise(await _stored(lab) == before, "what was last known stays while the database is away")
        away = CLOCK.now() - began
        back = await until("the syncer going on", lambda: _state(lab) == "ok")
        say(f"it was away for {away.total_seconds():.0f} s; the syncer goes on {back.total_seconds():.2f} s later")
        arrived = await _arrival(lab, Editor(engine, REGION))
        say(f"a change made now is in the store after {arrived.total_seconds():.2f} s")
        promise(_processes(lab) >= running, "no server process restarts because the database is away")
        await _settled(lab, inventory)  # that change was taken back, which has to arrive, too


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
    """Why, once per kind; and what opens it, once."""
    yield from dict.fromkeys(f"  {one['reason']}" for one in objects if one["gate"] == "brake")
    yield from dict.fromkeys(f"  opens by: {one['opens']}" for one in objects if one["gate"] == "brake")


async def _settled(lab: Lab, inventory: SqlInventory) -> Mapping[bytes, bytes]:
    """What the store has of the inventory, once nothing is on its way any more."""
    await until("the syncer being content", lambda: _state(lab) == "ok" and not inventory.waiting())
    return await _stored(lab)


async def _stored(lab: Lab) -> Mapping[bytes, bytes]:
    async with store_of(lab) as store:
        found: dict[bytes, bytes] = {}
        for kind in KINDS:
            async for page in store.list(kind.prefix(REGION)):
                found |= {entry.key: entry.value for entry in page.entries}
    return found


async def _arrival(lab: Lab, editor: Editor) -> Duration:
    """How long a change takes from the database into the store; it is taken back."""
    wish = wanted(NETWORK, REGION, "scene", Network(prefixes=("198.51.100.0/24",)))
    began = CLOCK.now()
    editor.change([wish], who="lab", why="database-away")
    try:
        async with store_of(lab) as store:
            while await store.get(wish.key) is None:
                if CLOCK.now() - began > PATIENCE:
                    raise Broken(f"a change did not arrive within {PATIENCE.total_seconds():g} s")
                await asyncio.sleep(0.02)
        return CLOCK.now() - began
    finally:
        editor.undo(NETWORK, "scene", who="lab")


def _state(lab: Lab) -> str:
    """What the syncer of the server that leads says of itself."""
    found = lab.leader()
    if found is None:
        return ""
    try:
        said = report(lab.board(found[0]), "server", "", CLOCK.now())
    except BoardError:
        return ""
    return next((worker.state for worker in said.workers if worker.name == "syncer"), "")


async def _syncer(lab: Lab, do: str) -> Any:
    """What the syncer of the server that leads answers, once there is one: leadership may change at any time."""
    began, why = CLOCK.now(), "nobody leads"
    while CLOCK.now() - began < PATIENCE:
        found = lab.leader()
        if found is not None:
            said = await ask(lab.folder / "run" / found[0] / "server.sock", Request("tell", {"do": do}, "syncer"))
            if not said.error:
                return said.result
            why = said.error
        await asyncio.sleep(0.1)
    raise Broken(f"no syncer answered within {PATIENCE.total_seconds():g} s: {why}")


def _processes(lab: Lab) -> set[int]:
    return {pid for server in fleet.SERVERS for pid in lab.tree(server)}


SCENES: Mapping[str, Scene] = {"database-emptied": database_emptied, "database-away": database_away}
