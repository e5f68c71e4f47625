"""Syncers that die by SIGKILL, one after another, between the inventory's commit and the end of their work.

    python -m tests.chaos.killed_syncers DATABASE ETCD REGION ROUNDS SEED

Each round commits a change and forks a syncer that has no resync, only the outbox; it kills itself just before it
writes to the store, just after, or a moment after its start. The last one lives and finishes. Compare then.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from random import Random

from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.inventory.sql.wake import waker
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.control.leader import LEADER
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.intents.etcd import SYNCER, server_intents
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.server.syncer.source import NAME
from holdfast.server.syncer.term import Syncer, SyncerTerm
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from tests.server.harness import leading as leading_for_ever

OBJECTS = 30
HOSTS = 4


def change(editor: Editor, region: Region, random: Random) -> int:
    """Create, change, move or delete one endpoint; return the acknowledged revision, or 0."""
    number = random.randrange(OBJECTS)
    if random.random() < 0.3:
        return editor.change([WantedObject(ENDPOINT, f"holdfast-w{number}-eth0")], who="chaos")[0].revision
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=f"w{number}",
        node=f"h{random.randrange(HOSTS)}",
        endpoint="eth0",
        ipv4_gateway=str(IPv4Address(random.getrandbits(32))),  # no two versions alike
        ip_networks=(f"10.0.0.{number}/32",),
    )
    return editor.change([wanted(ENDPOINT, region, spec.name, Endpoint.of(region, spec))], who="chaos")[0].revision


def kill_self_at(when: str, term: SyncerTerm) -> None:
    """Make this process kill itself at that point."""
    write = term.fenced.bulk

    async def die_before(*_batch: object) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")

    async def die_after(*batch: object) -> object:
        await write(*batch)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("dead")

    term.fenced.bulk = {"before": die_before, "after": die_after, "never": write}[when]  # type: ignore[assignment]


async def sync(database: str, etcd: str, region: Region, notes: Path, when: str) -> None:
    """Work through the outbox as a leader, or die."""
    engine = open_engine(database_url(database))
    store, clock, ear = EtcdStore(Connection((etcd,))), SystemClock(), waker(engine)
    leader = await store.get(LEADER.key(region, "leader"))
    assert leader is not None
    leadership, leading = leading_for_ever(leader.create_revision, clock)
    syncer = Syncer(
        context=Context(clock, Vitals(clock), DecisionLog(notes, "syncer"), WorkerMetrics()),
        store=store,
        region=region,
        inventory=SqlInventory(engine),
        run_in_thread=DatabaseThread("syncer"),
        waker=ear,
        leadership=leadership,
        seen_store=lambda: None,
        intents=server_intents(store, region, clock, notes, SYNCER),
    )
    term = await syncer.begin(leading)
    kill_self_at(when, term)
    assert term.reconciler.place.brake is not None
    term.reconciler.place.brake.allow(until=leading.until)  # few objects, many deletes: not what is tested here
    if term.identity_gate.verdict.closed is None:
        term.sync.forget(NAME)
        term.reconciler.dirty.take()
        term.reconciler._audit = leading.until  # no resync: what the outbox does not tell is lost
    while True:
        await term.check_identity()
        await term.reconciler.turn()
        if term.identity_gate.verdict.closed is None and not syncer.inventory.outbox(1):
            return
        await asyncio.sleep(0.01)


def forked(database: str, etcd: str, region: Region, notes: Path, when: str, alarm: float) -> bool:
    """Run one syncer in a process of its own; return True if it lived to the end."""
    pid = os.fork()
    if pid == 0:
        try:
            if alarm:
                signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
                signal.setitimer(signal.ITIMER_REAL, alarm)
            asyncio.run(sync(database, etcd, region, notes, when))
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 -- a child must not run on as its parent
            sys.stderr.write(f"a syncer failed: {error!r}\n")
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit(1)
    return os.WIFEXITED(status)


def main(database: str, etcd: str, name: str, rounds: str, seed: str) -> None:
    region, random = Region(name), Random(int(seed))
    killed = 0
    with tempfile.TemporaryDirectory(prefix="holdfast-syncs-") as folder:
        one_more = partial(forked, database, etcd, region, Path(folder))
        one_more("never", 0)  # inventory and store get their id
        for _ in range(int(rounds)):
            engine = open_engine(database_url(database))
            change(Editor(engine, region), region, random)
            engine.dispose()  # a connection must not be shared with a child
            when = random.choice(["before", "before", "after", "moment"])
            alarm = random.uniform(0.001, 0.1) if when == "moment" else 0
            killed += not one_more("never" if alarm else when, alarm)
        one_more("never", 0)
    sys.stdout.write(f"{killed}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
