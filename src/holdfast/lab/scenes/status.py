"""Scenes of status: unreadable values in etcd, and a database that accepts no write while reports pour in.

Both use reports of made-up hosts next to the lab's own, and remove them at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from sqlalchemy import Engine

from holdfast.inventory.sql.observed import SqlObserved
from holdfast.lab.fleet import layout
from holdfast.lab.scenes.stage import CLOCK, PATIENCE, Lab, Say, Scene, limit_s, obtain, promise, until
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, AgentStatus
from holdfast.store.api import prefix_end
from holdfast.store.client import EtcdStore

REGION = Region()
UNREADABLE = (b'"up"', b"[1, 2", b"\xff\xfe", b'{"time": 7}')
MADE_UP = "scene-"
REPORTERS = 200
MAX_LOCK_S = 12.0
"""The database is locked no longer than this; a report counts as stale after 5 s in the lab."""


async def unreadable_value(lab: Lab, say: Say, seconds: float) -> None:
    """Put values that cannot be decoded where agents report their status."""
    await _agent_status(lab)
    trees = _trees(lab)
    with lab.database() as engine:
        observed = SqlObserved(engine)
        async with lab.store() as store, _cleaned(store):
            for number, value in enumerate(UNREADABLE):
                await store.put(_key(f"unreadable-{number}"), value)
            say(f"put {len(UNREADABLE)} unreadable values where agents report, such as {UNREADABLE[0].decode()}")
            took = await until("the values to be counted", lambda: _has_bad(lab, len(UNREADABLE)))
            status = await _agent_status(lab)
            say(f"they are reported after {took.total_seconds():.2f} s: {status['bad'][0]}")
            began = CLOCK.now()
            await _report(store, ["neighbour"])
            await until("a valid report to arrive", lambda: _is_alive(observed, "neighbour"))
            say(f"a valid report is in the inventory after {(CLOCK.now() - began).total_seconds():.2f} s")
            names = [f"unreadable-{number}" for number in range(len(UNREADABLE))]
            await until("all hosts to count as present", lambda: all(_is_alive(observed, name) for name in names))
            say(f"{len(names)} of {len(names)} hosts with an unreadable value count as present: bad is not absent")
        gone = await until("the deleted values to be forgotten", lambda: _has_bad(lab, 0))
        say(f"deleted the values; none is reported after {gone.total_seconds():.2f} s")
    promise(_trees(lab) == trees, "no worker exits because of a value in etcd")


async def status_backlog(lab: Lab, say: Say, seconds: float) -> None:
    """Lock the database against writes for up to 12 s while reports pour in."""
    await _agent_status(lab)  # a leader is needed before the database is locked: none could begin its term after that
    trees, names = _trees(lab), [f"{number:03}" for number in range(REPORTERS)]
    with lab.database() as engine:
        observed = SqlObserved(engine)
        async with lab.store() as store, _cleaned(store):
            began = CLOCK.now()
            with _locked(engine):
                say("locked the database against writes")
                reports = await _report_repeatedly(store, names, min(seconds, MAX_LOCK_S))
                status = await _agent_status(lab)
            behind, lasted = status["behind"], CLOCK.now() - began
            say(f"{reports:,} reports of {REPORTERS} hosts in {lasted.total_seconds():.0f} s, none could be written")
            say(f"backlog: {behind['waiting']:,} objects, {behind['revisions']:,} revisions")
            say(f"agent-status reports: {status['late'] or 'nothing'}")
            last = await _last(store)
            drained = await until("every host's last report to arrive", lambda: _reported(observed, last))
            say(f"unlocked; the last report of every host is in the inventory after {drained.total_seconds():.2f} s")
            promise(behind["waiting"] <= REPORTERS + status["total"] + 1, "the backlog has at most one item per object")
            promise("backlog" in status["late"], "the warning names our backlog as the cause")
    promise(_trees(lab) == trees, "no worker restarts because the database is slow")


async def _report_repeatedly(store: EtcdStore, names: list[str], lasting: float) -> int:
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
    """Return the last reports of the made-up hosts."""
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


async def _has_bad(lab: Lab, count: int) -> bool:
    """Return True if the leader counts at least so many unreadable values, or none for 0."""
    total = (await _agent_status(lab))["bad_total"]
    return bool(total >= count if count else total == 0)


async def _agent_status(lab: Lab) -> dict[str, Any]:
    """Wait for the leader's agent-status worker, and return its summary."""

    async def read() -> dict[str, Any] | None:
        for server in layout.SERVERS:
            answer = await lab.ask(f"{server}/server", "agent-status", "about", timeout=15.0)
            if not answer.error and answer.result["leading"]:
                found: dict[str, Any] = answer.result
                return found
        return None

    return await obtain("an agent-status worker that leads (see holdfast status)", read)


def _trees(lab: Lab) -> list[set[int]]:
    return [set(lab.tree(server)) for server in layout.SERVERS]


@contextlib.contextmanager
def _locked(engine: Engine) -> Iterator[None]:
    """Hold SQLite's only write lock for the length of the block."""
    with engine.connect() as connection, connection.begin() as transaction:
        yield
        transaction.rollback()


@contextlib.asynccontextmanager
async def _cleaned(store: EtcdStore) -> AsyncIterator[None]:
    """Delete the reports of the made-up hosts, however the scene ends."""
    try:
        yield
    finally:
        await store.delete(_prefix(), end=prefix_end(_prefix()))


SCENES: Mapping[str, Scene] = {
    "poison-key": Scene(
        unreadable_value,
        promise="values that cannot be read are named, count as present, and stop neither neighbours nor workers",
        limit=f"each step within {limit_s(PATIENCE)}; 0 workers exit",
    ),
    "backlog": Scene(
        status_backlog,
        promise="while the database takes no writes, the backlog stays bounded and is named, and no worker restarts",
        limit=f"1 item per object; a lock of {MAX_LOCK_S:g} s at most; 0 restarts",
    ),
}
