"""Scenes of status: a value in etcd that makes no sense, and a database that crawls while reports pour in.

Both are done beside the lab's own hosts, with reports of made-up ones, and taken back in the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from sqlalchemy import Engine

from holdfast.inventory.sql.observed import SqlObserved
from holdfast.lab.fleet import fleet
from holdfast.lab.scenes.stage import CLOCK, Broken, Lab, Say, Scene, database_of, promise, store_of, until
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.runtime.control import Request, ask
from holdfast.store.api import prefix_end
from holdfast.store.client import EtcdStore

REGION = Region()
POISON = (b'"up"', b"[1, 2", b"\xff\xfe", b'{"time": 7}')
MADE_UP = "scene-"
REPORTERS = 200
CRAWL_S = 12.0
"""For how long the database crawls at most; a report counts as stale after 5 s in the lab."""
WORKERS = ("agent-status", "endpoint-status")


async def poison_key(lab: Lab, say: Say, seconds: float) -> None:
    """Values that make no sense are put where agents report."""
    await _agents(lab)
    trees = _trees(lab)
    with database_of(lab) as engine:
        observed = SqlObserved(engine)
        async with store_of(lab) as store, _cleaned(store):
            for number, value in enumerate(POISON):
                await store.put(_key(f"poisoned-{number}"), value)
            say(f"put {len(POISON)} values that make no sense where agents report, such as {POISON[0].decode()}")
            took = await _until_seen(lab, "the poison", lambda said: said["bad_total"] >= len(POISON))
            about = await _agents(lab)
            say(f"they are named after {took.total_seconds():.2f} s: {about['bad'][0]}")
            began = CLOCK.now()
            await _report(store, ["neighbour"])
            await until("a neighbour's report arriving", lambda: _is_alive(observed, "neighbour"))
            say(f"a neighbour's report is in the inventory after {(CLOCK.now() - began).total_seconds():.2f} s")
            names = [f"poisoned-{number}" for number in range(len(POISON))]
            await until("poisoned hosts counting as present", lambda: all(_is_alive(observed, name) for name in names))
            say(f"{len(names)} of {len(names)} poisoned hosts count as present: bad is not absent")
        gone = await _until_seen(lab, "the poison going", lambda said: said["bad_total"] == 0)
        say(f"deleted; nothing is left of it after {gone.total_seconds():.2f} s")
    promise(_trees(lab) == trees, "no worker dies of a value in etcd")


async def backlog(lab: Lab, say: Say, seconds: float) -> None:
    """The database lets nobody write for a while, and reports pour in."""
    await _agents(lab)  # one leads before the database is locked: none could begin to after that
    trees, names = _trees(lab), [f"{number:03}" for number in range(REPORTERS)]
    with database_of(lab) as engine:
        observed = SqlObserved(engine)
        async with store_of(lab) as store, _cleaned(store):
            began = CLOCK.now()
            with _locked(engine):
                say("locked the database: nobody can write to it now")
                reports = await _pour(store, names, min(seconds, CRAWL_S))
                about = await _agents(lab)
            behind, lasted = about["behind"], CLOCK.now() - began
            say(f"{reports:,} reports of {REPORTERS} hosts in {lasted.total_seconds():.0f} s, none could be written")
            say(f"waiting: {behind['waiting']:,} objects, {behind['revisions']:,} revisions behind")
            say(f"agent-status says: {about['late'] or 'nothing'}")
            last = await _last(store)
            drained = await until("every host's last report arriving", lambda: _reported(observed, last))
            say(f"unlocked; the last report of every host is in the inventory after {drained.total_seconds():.2f} s")
            promise(behind["waiting"] <= REPORTERS + about["total"] + 1, "at most one item per object waits")
            promise("backlog" in about["late"], "the warning says that it is our backlog")
    promise(_trees(lab) == trees, "nothing restarts because the database crawls")


async def _pour(store: EtcdStore, names: list[str], lasting: float) -> int:
    began, count = CLOCK.now(), 0
    while (CLOCK.now() - began).total_seconds() < lasting:
        await _report(store, names, uptime=count)
        count += len(names)
        await asyncio.sleep(0.2)
    return count


async def _report(store: EtcdStore, names: list[str], uptime: float = 1.0) -> None:
    value = AGENT_STATUS.encode(AgentStatus.of(CLOCK.wall(), uptime))
    for first in range(0, len(names), 50):
        await asyncio.gather(*(store.put(_key(name), value) for name in names[first : first + 50]))


async def _last(store: EtcdStore) -> Mapping[bytes, bytes]:
    """What the made-up hosts have said last."""
    found: dict[bytes, bytes] = {}
    async for page in store.list(_prefix()):
        found |= {entry.key: entry.value for entry in page.entries}
    return found


def _reported(observed: SqlObserved, last: Mapping[bytes, bytes]) -> bool:
    seen = {one.key: one.doc for one in observed.read("agent", _prefix(), None, 10_000)}
    times = {key: AGENT_STATUS.decode(key, value) for key, value in last.items()}
    return all(
        isinstance(status, AgentStatus) and (status.time or "").encode() in seen.get(key, b"")
        for key, status in times.items()
    )


def _is_alive(observed: SqlObserved, name: str) -> bool:
    key = _key(name)
    return any(one.key == key and b'"alive":true' in one.doc for one in observed.read("agent", _prefix(), None, 10_000))


def _prefix() -> bytes:
    return AGENT_STATUS.prefix(REGION) + MADE_UP.encode()


def _key(name: str) -> bytes:
    return AGENT_STATUS.key(REGION, MADE_UP + name)


async def _until_seen(lab: Lab, what: str, holds: Any) -> Duration:
    began = CLOCK.now()
    while not holds(await _agents(lab)):
        if CLOCK.now() - began > Duration(seconds=60):
            raise Broken(f"{what} was not noticed within 60 s")
        await asyncio.sleep(0.05)
    return CLOCK.now() - began


async def _agents(lab: Lab) -> dict[str, Any]:
    """How agent-status of the server that leads says things are; waits for one that does."""
    began = CLOCK.now()
    while CLOCK.now() - began < Duration(seconds=60):
        for server in fleet.SERVERS:
            path = lab.folder / "run" / server / "server.sock"
            said = await ask(path, Request("tell", {"do": "about"}, WORKERS[0]), timeout=15.0)
            if not said.error and said.result["leading"]:
                found: dict[str, Any] = said.result
                return found
        await asyncio.sleep(0.2)
    raise Broken("no agent-status leads within 60 s: see holdfast status")


def _trees(lab: Lab) -> list[set[int]]:
    return [set(lab.tree(server)) for server in fleet.SERVERS]


@contextlib.contextmanager
def _locked(engine: Engine) -> Iterator[None]:
    """SQLite has one writer at a time, and for now that is us."""
    with engine.connect() as connection, connection.begin() as transaction:
        yield
        transaction.rollback()


@contextlib.asynccontextmanager
async def _cleaned(store: EtcdStore) -> AsyncIterator[None]:
    """Takes the reports of made-up hosts back, however the scene ends."""
    try:
        yield
    finally:
        await store.delete(_prefix(), end=prefix_end(_prefix()))


SCENES: Mapping[str, Scene] = {"poison-key": poison_key, "backlog": backlog}
