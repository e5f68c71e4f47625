"""Scenes of restores: etcd or the database goes back to an earlier copy, and a first start beside Calico.

The dataplane files of all agents are recorded all the time, so that a route that is missing or different for a moment
is noticed. Each scene adds a host of its own after the copy was made, and deletes it at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.migrate import migrate
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.lab.fleet import layout, seed
from holdfast.lab.fleet import server as lab_server
from holdfast.lab.scenes.stage import (
    CLOCK,
    PATIENCE,
    Lab,
    NotInThisLab,
    Say,
    Scene,
    limit_s,
    obtain,
    promise,
    until,
)
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.model.control.identity import Identity
from holdfast.runtime.control import Request, ask
from holdfast.store.api import Store
from holdfast.store.client import EtcdStore
from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.store.identity import read_identity
from holdfast.testing.real.kernel_recorder import KernelRecorder, read_kernel, recorded

REGION = Region()
_NEW_HOST = "r8-01"
_NUMBER = 88
_ADDED = [
    seed.host(_NEW_HOST, _NUMBER),
    *(seed.endpoint(_NEW_HOST, f"late-{index}", f"10.28.{_NUMBER}.{index}/32") for index in (1, 2, 3)),
]
_FOREIGN = 15
_LOOKED_AT = Duration(seconds=8)
"""A first start deleted foreign objects within 7 s before they were protected."""
_LONG = Duration(seconds=120)
"""In a small fleet the brake may hold the deletes of an earlier scene for a minute."""


async def etcd_restored(lab: Lab, say: Say, seconds: float) -> None:
    """Put etcd back to a copy of its disk that is older than the last changes."""
    with lab.database() as engine:
        inventory = SqlInventory(engine)
        await _settled(lab, inventory)
        copy = _copy_of_etcd(lab)
        say("copied the disk of etcd")
        async with _later_edits(lab, inventory, say) as record:
            pid = lab.etcd_pid()
            _put_back(lab, copy, pid)
            say("put etcd back to that copy: the later changes are gone from the store")
            await until("etcd to come back", lambda: lab.etcd_pid() != pid)
            took = await until("the store to be refilled", lambda: _is_complete(lab, inventory))
            say(f"{len(_ADDED)} of {len(_ADDED)} objects are in the store again {took.total_seconds():.2f} s later")
            sentence = await _verdict(lab)
            say(f"verdict: {sentence}")
            promise(not record.faults(), f"no agent loses or changes a route: {_first(record)}")
            say(await _adopt(lab, side="store", reason="lab break etcd-restored"))
            await until("the verdict to end", lambda: _is_ended(lab))
            await _settled(lab, inventory)
            _tell(record, say)


async def database_restored(lab: Lab, say: Say, seconds: float) -> None:
    """Put the inventory's database back to a copy that is older than the last changes."""
    with lab.database() as engine, tempfile.TemporaryDirectory(prefix="holdfast-scene-") as folder:
        inventory = SqlInventory(engine)
        await _settled(lab, inventory)
        file, copy = Path(layout.database(lab.state).removeprefix("sqlite:///")), Path(folder) / "copy.db"
        _copy(file, copy)
        say("copied the database")
        async with _later_edits(lab, inventory, say) as record:
            before, newest = await _stored(lab), Path(folder) / "newest.db"
            _copy(file, newest)
            _copy(copy, file)
            say("put the database back to that copy: the later changes are gone from the inventory")
            sentence = await _verdict(lab)
            say(f"verdict: {sentence}")
            await _syncer(lab, "sync")
            await asyncio.sleep(_LOOKED_AT.total_seconds() / 2)
            promise(await _stored(lab) == before, "a restored database deletes and changes nothing in the store")
            promise(not record.faults(), f"no agent loses or changes a route: {_first(record)}")
            say(f"{len(before):,} of {len(before):,} objects are in the store as before")
            _copy(newest, file)
            say("put the newest copy back, which has everything that the store has")
            say(await _adopt(lab, side="inventory", keep="inventory", reason="lab break database-restored"))
            await until("the verdict to end", lambda: _is_ended(lab))
            promise(await _stored(lab) == before, "an adoption of equal sides changes nothing")
            _tell(record, say)


async def foreign_store(lab: Lab, say: Say, seconds: float) -> None:
    """Start a first server on a store that Calico uses, beside the lab."""
    objects = _calico(_FOREIGN)
    with tempfile.TemporaryDirectory(prefix="holdfast-scene-") as name:
        folder = Path(name)
        (folder / "etcd").mkdir()
        etcd = os.environ.get("HOLDFAST_ETCD")
        async with EmbeddedEtcd(folder / "etcd", etcd=Path(etcd) if etcd else None, for_trying_out=True) as running:
            store = EtcdStore(running.connection())
            for key, value in objects.items():
                await store.put(key, value)
            say(f"started an etcd with {_FOREIGN} Nodes and {_FOREIGN} WorkloadEndpoints of Calico, and no identity")
            async with _first_server(folder, running.endpoint):
                await until("the server to lead", lambda: _answers(folder))
                say("started a server with an inventory that has none of them")
                await asyncio.sleep(_LOOKED_AT.total_seconds())
                promise(await _all(store) == objects, "an unnamed store is not changed before an operator adopts it")
                say(f"{len(objects)} of {len(objects)} objects are as before after {_LOOKED_AT.total_seconds():g} s")
                say(await _adopt_first(folder))
                await until("the inventory's objects to be stored", lambda: _has_more(store, objects))
                kept = objects.items() <= (await _all(store)).items()
                promise(kept, "what nobody deleted in the inventory stays in the store, after the adoption too")
                say(f"{len(objects)} of {len(objects)} objects are as before; those of the inventory are beside them")
            await store.close()


@contextlib.asynccontextmanager
async def _later_edits(lab: Lab, inventory: SqlInventory, say: Say) -> AsyncIterator[KernelRecorder]:
    """Make changes that the copy does not have, and record all dataplanes until the block ends."""
    files = {host: layout.kernel_file(lab.state, host) for host in _hosts(lab)}
    seed.change(lab.state, _ADDED, "lab break")
    try:
        await until(f"{_NEW_HOST} to be programmed", lambda: all(_has_routes(file) for file in files.values()))
        await _settled(lab, inventory)
        say(f"added {_NEW_HOST} with {len(_ADDED) - 1} workloads; {len(files)} agents have programmed it")
        with recorded(files) as record:
            yield record
    finally:
        seed.change(lab.state, [seed.deleted(one) for one in _ADDED], "end of lab break")


def _hosts(lab: Lab) -> Sequence[str]:
    on_files = [host for host in layout.hosts(lab.state) if host not in layout.namespaces(lab.state)]
    if not on_files:
        raise NotInThisLab("all hosts of this lab are on the kernel: start it with --hosts 6")
    return on_files


def _has_routes(file: Path) -> bool:
    texts = {key.text for key in read_kernel(file)}
    return all(f"10.28.{_NUMBER}.{index}/32" in texts for index in (1, 2, 3))


def _tell(record: KernelRecorder, say: Say) -> None:
    faults = record.faults()
    total = sum(map(len, record.expected.values()))
    say(f"{len(faults)} of {total} programmed objects were ever missing or different in {record.samples:,} samples")
    promise(not faults, f"no agent loses or changes a route: {_first(record)}")


def _first(record: KernelRecorder) -> str:
    return next(iter(record.faults()), "none")


def _copy_of_etcd(lab: Lab) -> Path:
    """Copy etcd's folder while etcd stands still, as a snapshot of its disk."""
    folder = layout.etcd_folder(lab.state)
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    pid = lab.etcd_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        shutil.copytree(folder / "data", copy)
    finally:
        os.kill(pid, signal.SIGCONT)
    return copy


def _put_back(lab: Lab, copy: Path, pid: int) -> None:
    """Exchange etcd's folder while etcd stands still, and kill it; the lab restarts it on the copy."""
    folder = layout.etcd_folder(lab.state)
    os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(folder / "data")
    copy.rename(folder / "data")
    os.kill(pid, signal.SIGKILL)


def _copy(source: Path, target: Path) -> None:
    """Copy a SQLite database over another one, in a transaction: both may be in use."""
    with contextlib.closing(sqlite3.connect(source)) as old, contextlib.closing(sqlite3.connect(target)) as new:
        old.backup(new)


async def _settled(lab: Lab, inventory: SqlInventory) -> None:
    """Wait until no change is on its way to the store."""

    async def settled() -> bool:
        await lab.release_brake()
        return not inventory.waiting() and await _stored(lab) == _wanted(inventory)

    await until("inventory and store to be in sync (see holdfast plan syncer)", settled, _LONG)


async def _is_complete(lab: Lab, inventory: SqlInventory) -> bool:
    return _wanted(inventory).items() <= (await _stored(lab)).items()


def _wanted(inventory: SqlInventory) -> Mapping[bytes, bytes]:
    snapshot = inventory.snapshot()
    try:
        return {row.key: row.doc for row in snapshot.read(None, 100_000)}
    finally:
        snapshot.close()


async def _stored(lab: Lab) -> Mapping[bytes, bytes]:
    async with lab.store() as store:
        return await _all(store)


async def _all(store: Store) -> Mapping[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for kind in KINDS:
        async for page in store.list(kind.prefix(REGION)):
            found |= {entry.key: entry.value for entry in page.entries}
    return found


async def _identity(lab: Lab) -> Identity | None:
    async with lab.store() as store:
        found = (await read_identity(store, REGION)).identity
    return found if isinstance(found, Identity) else None


async def _verdict(lab: Lab) -> str:
    """Wait until the leader has recorded a verdict, and return its sentence."""

    async def read() -> str | None:
        found = await _identity(lab)
        return found.verdict.sentence if found is not None and found.verdict is not None else None

    return await obtain("the leader to notice", read)


async def _is_ended(lab: Lab) -> bool:
    found = await _identity(lab)
    return found is not None and found.verdict is None


async def _syncer(lab: Lab, command: str, **args: object) -> Any:
    """Send a command to the leader's syncer; leadership may change at any time, so it tries again."""

    async def read() -> Any:
        leader = lab.leader()
        answer = await lab.ask(f"{leader[0]}/server", "syncer", command, args) if leader else None
        return None if answer is None or answer.error else (answer.result,)

    (result,) = await obtain(f"the leader's syncer to accept {command}", read)
    return result


async def _adopt(lab: Lab, **args: object) -> str:
    """Adopt as `holdfast store adopt` and `holdfast inventory adopt` do, and return the leader's sentence."""
    state = await _syncer(lab, "adopt", **args)
    while not state["done"]:
        await asyncio.sleep(0.1)
        state = await _syncer(lab, "adopt", progress=True)
    promise(not state["error"], f"the adoption succeeds, but: {state['error']}")
    return str(state["sentence"])


@contextlib.asynccontextmanager
async def _first_server(folder: Path, url: str) -> AsyncIterator[None]:
    """Run one server with an inventory of its own until the block ends."""
    address = f"sqlite:///{folder}/inventory.db"
    with _inventory(address) as editor:
        editor.change([seed.host("r7-01", 77), seed.endpoint("r7-01", "own", "10.28.77.1/32")], who="lab")
    settings = ["server.name=first", f"store.endpoints={url}", f"inventory.database={address}"]
    settings += [f"paths.runtime={folder}/run", f"paths.state={folder}/state"]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*lab_server.command(settings), stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@contextlib.contextmanager
def _inventory(address: str) -> Iterator[Editor]:
    engine = open_engine(database_url(address))
    try:
        migrate(engine)
        yield Editor(engine, REGION)
    finally:
        engine.dispose()


async def _answers(folder: Path) -> bool:
    """Return True once the syncer of the first server leads."""
    return not (await _ask(folder, "held")).error


async def _ask(folder: Path, command: str, **args: object) -> Any:
    return await ask(folder / "run" / "server.sock", Request("tell", {"do": command, "args": args}, "syncer"))


async def _adopt_first(folder: Path) -> str:
    answer = await _ask(folder, "adopt", side="store", reason="lab break foreign-store")
    promise(not answer.error, f"an operator can adopt the store, but: {answer.error}")
    began = CLOCK.now()
    while not answer.error and not answer.result["done"] and CLOCK.now() - began < _LONG:
        await asyncio.sleep(0.1)
        answer = await _ask(folder, "adopt", progress=True)
    error = answer.error or answer.result["error"]
    promise(not error, f"the adoption succeeds, but: {error}")
    return str(answer.result["sentence"])


async def _has_more(store: Store, objects: Mapping[bytes, bytes]) -> bool:
    return len(await _all(store)) >= len(objects) + 2


def _calico(count: int) -> Mapping[bytes, bytes]:
    """Return that many Nodes and WorkloadEndpoints as Calico writes them."""
    found: dict[str, object] = {}
    version = {"apiVersion": "projectcalico.org/v3"}
    for number in range(1, count + 1):
        node, device, port = f"compute-{number}", f"843c-{number}", f"8e80-{number}"
        name = "-".join(part.replace("-", "--") for part in (node, "openstack", device, port))
        spec = {"orchestrator": "openstack", "node": node, "workload": device, "endpoint": port}
        spec |= {"interfaceName": f"tap{number}", "mac": f"fa:16:3e:00:00:{number:02x}"}
        own = {"name": name, "namespace": "openstack", "uid": f"e-{number}"}
        found[f"nodes/{node}"] = {
            "kind": "Node",
            "metadata": {"name": node, "uid": f"n-{number}"},
            **version,
            "spec": {"bgp": {"ipv4Address": f"198.51.100.{number}/24"}},
        }
        found[f"workloadendpoints/openstack/{name}"] = {
            "kind": "WorkloadEndpoint",
            "metadata": own,
            **version,
            "spec": {**spec, "ipNetworks": [f"10.77.0.{number}/32"]},
        }
    prefix = "/calico/resources/v3/projectcalico.org/"
    return {f"{prefix}{key}".encode(): msgspec.json.encode(value) for key, value in found.items()}


SCENES: Mapping[str, Scene] = {
    "etcd-restored": Scene(
        etcd_restored,
        promise="an etcd that went back to an older copy is noticed and filled again, and no agent loses a route",
        limit=f"each step within {limit_s(PATIENCE)}; 0 objects missing or different in any kernel",
    ),
    "database-restored": Scene(
        database_restored,
        promise="a database that went back to an older copy deletes and changes nothing before an operator decides",
        limit="0 changes in the store; 0 objects missing or different in any kernel",
    ),
    "foreign-store": Scene(
        foreign_store,
        promise="a first start changes nothing in an etcd that Calico uses before an operator adopts it",
        limit=f"0 changes in {limit_s(_LOOKED_AT)}, and none to those objects after the adoption",
    ),
}
