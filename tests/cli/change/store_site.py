"""A region of the shared etcd, an SQLite inventory beside it, and a stand-in for the leader's syncer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from click.testing import CliRunner, Result
from sqlalchemy import Engine

from holdfast.cli import main
from holdfast.inventory.changes import WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.control.identity import IDENTITY, Identity, LatchedVerdict
from holdfast.runtime.control import ControlServer, Request, Who
from holdfast.server.syncer.keys import RegionKeys
from holdfast.store.api import Entry
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.real.etcd import EtcdCluster

R = TypeVar("R")


class StoreSite:
    """A store that another controller has filled, and the operator's commands on both sides."""

    def __init__(self, cluster: EtcdCluster, engine: Engine, folder: Path, region: str) -> None:
        self.cluster = cluster
        self.region = Region(region)
        self.engine, self.editor, self.inventory = engine, Editor(engine, self.region), SqlInventory(engine)
        self.layout = RegionKeys(self.region, KINDS)
        self.runtime = folder / "run"
        self.runtime.mkdir()
        self._settings = (
            f"inventory.database={engine.url.render_as_string()}",
            f"store.endpoints={','.join(cluster.endpoints)}",
            f"store.region={region}",
        )

    def __call__(self, *words: str, confirm: str = "") -> Result:
        flags = [word for one in self._settings for word in ("--set", one)]
        return CliRunner().invoke(main, [*words, *flags], input=confirm)

    def adopt(self, *words: str, confirm: str = "") -> Result:
        return self("inventory", "adopt", "--runtime", str(self.runtime), *words, confirm=confirm)

    def run(self, query: Callable[[EtcdStore], Awaitable[R]]) -> R:
        async def scenario() -> R:
            store = EtcdStore(Connection(tuple(self.cluster.endpoints)))
            try:
                return await query(store)
            finally:
                await store.close()

        return asyncio.run(scenario())

    def host(self, number: int) -> WantedObject:
        spec = HostSpec(bgp=Bgp(ipv4_address=f"192.0.2.{number}/24"))
        return wanted(HOST, self.region, f"r{number}", Host.of(f"r{number}", spec))

    def endpoint(self, number: int, *, on: str = "r1", gateway: str = "", address: str = "") -> WantedObject:
        spec = EndpointSpec(
            orchestrator="holdfast",
            workload=f"w{number}",
            node=on,
            endpoint="eth0",
            ipv4_gateway=gateway,
            ip_networks=(address or f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}/32",),
        )
        return wanted(ENDPOINT, self.region, spec.name, Endpoint.of(self.region, spec))

    def key(self, number: int, *, on: str = "r1") -> bytes:
        return ENDPOINT.key(self.region, EndpointName(on, "holdfast", f"w{number}", "eth0"))

    def write(self, *objects: WantedObject) -> None:
        """Write objects to the store as another controller does, with fields that our model does not know."""

        async def put(store: EtcdStore) -> None:
            for one in objects:
                assert one.thing is not None
                document: dict[str, Any] = msgspec.json.decode(one.kind.encode(one.thing))
                document["extra"] = {"by": "calico"}
                document["metadata"] |= {"uid": f"uid-{one.name}", "creationTimestamp": "2020-01-02T03:04:05Z"}
                await store.put(one.key, msgspec.json.encode(document))

        self.run(put)

    def put(self, key: bytes, value: bytes) -> None:
        self.run(lambda store: store.put(key, value))

    def delete(self, key: bytes) -> None:
        self.run(lambda store: store.delete(key))

    def entries(self) -> dict[bytes, Entry]:
        async def read(store: EtcdStore) -> dict[bytes, Entry]:
            pages = [page for prefix in self.layout.prefixes async for page in store.list(prefix)]
            return {entry.key: entry for page in pages for entry in page.entries if self.layout.is_ours(entry)}

        return self.run(read)

    def differing(self) -> list[bytes]:
        """Keys that a sync would write or delete."""
        snapshot = self.inventory.snapshot()
        rows = {row.key: Entry(row.key, row.doc) for row in snapshot.read(None, 100_000)}
        snapshot.close()
        found = self.entries()
        both = rows.keys() & found.keys()
        return sorted(
            (rows.keys() ^ found.keys()) | {key for key in both if not self.layout.same(rows[key], found[key])}
        )

    def latch(self, revision: int) -> None:
        """Let the store carry the verdict `inventory_restored`, reached at that revision of the inventory."""
        verdict = LatchedVerdict("inventory_restored", "the inventory was restored from a backup", revision)
        value = IDENTITY.encode(Identity("f1", 1, verdict=verdict))
        self.put(IDENTITY.key(self.region, "identity"), value)


@contextlib.contextmanager
def syncer(runtime: Path, answer: Callable[[dict[str, Any]], str]) -> Iterator[None]:
    """Serve a control socket with one worker, `syncer`, whose command `adopt` is answered by a function."""
    ready, done = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def status(_request: Request, _who: Who) -> Any:
        return {"workers": [{"name": "syncer", "phase": "running"}]}

    async def tell(request: Request, _who: Who) -> Any:
        assert request.args["do"] == "adopt"
        sentence = await asyncio.to_thread(answer, dict(request.args["args"]))
        return {"done": True, "error": "", "sentence": sentence}

    async def serve() -> None:
        async with ControlServer(runtime / "server.sock", {"status": status, "tell": tell}):
            ready.set()
            await done.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(30)
        loop.close()
