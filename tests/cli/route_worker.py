"""Worker for the tests of the operator's commands: a real reconciler that needs neither etcd nor root.

`routes` keeps one file (the dataplane, which outlives the worker as a kernel does) equal to another file (the wanted
routes, which a test edits), through the same loop, gates, ledger and decision log as every other place. `seed` writes
the first list and completes.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from holdfast.model.base.time import Duration
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.reconcile import Away, Brake, Change, Kinds, Outcome, Owned, PauseGate, Synced, SyncGate, one_kind
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.intents.store import FileIntents
from holdfast.runtime.paths import write_atomically
from holdfast.runtime.reconciler import Reconciler
from holdfast.runtime.reconciler.place import LoopTimings, Place
from holdfast.testing.fakes.target import MemorySource, MemoryTarget

log = structlog.get_logger(__name__)

WORKERS = (Spec("seed", "tests.cli.route_worker:seed", once=True), Spec("routes", "tests.cli.route_worker:routes"))
HOSTS = 12

Key = tuple[int, int, int]
"""Family, address as a number, prefix length: routes sort in the order in which people read them."""

_KINDS: Kinds[Key] = one_kind("routes")


class BadRoutes(ValueError):
    """The file of wanted routes cannot be parsed; the message is one sentence."""


def key_of(prefix: str) -> Key:
    network = ipaddress.ip_network(prefix)
    return network.version, int(network.network_address), network.prefixlen


def show(key: Key) -> str:
    family, number, length = key
    address = ipaddress.IPv4Address(number) if family == 4 else ipaddress.IPv6Address(number)
    return f"{address}/{length}"


def wanted_file(state: Path) -> Path:
    return state / "wanted-routes.json"


def dataplane_file(state: Path) -> Path:
    return state / "dataplane.json"


def decode(content: bytes) -> dict[Key, str]:
    """Parse a table of prefix → gateway."""
    try:
        table = msgspec.json.decode(content, type=dict[str, str])
        return {key_of(prefix): gateway for prefix, gateway in table.items()}
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadRoutes(str(error)) from error


def encode(routes: Mapping[Key, str]) -> bytes:
    table = {show(key): routes[key] for key in sorted(routes)}
    return msgspec.json.format(msgspec.json.encode(table), indent=2)


class WantedRoutes(MemorySource[Key, str]):
    """Wanted routes, read from a file. A bad file is logged once, and the last good list stays wanted."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.what = "list of wanted routes"
        self._path = path
        self._seen: bytes | None = None
        self.revision = 0

    def changed(self) -> bool:
        """Read the file; return True if it holds a new valid list."""
        try:
            content = self._path.read_bytes()
        except OSError as error:
            self.away = f"{self._path} cannot be read ({error.strerror})"
            return False
        self.away = None
        if content == self._seen:
            return False
        self._seen = content
        try:
            routes = decode(content)
        except BadRoutes as bad:
            log.error("wanted routes are unreadable; keeping the last good list", file=str(self._path), error=str(bad))
            return False
        self.revision += 1
        self.objects = {key: Owned(gateway, "file", self.revision) for key, gateway in routes.items()}
        return True


class FileDataplane(MemoryTarget[Key, str]):
    """Dataplane in a file, which outlives its worker."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    async def read(self, after: Key | None) -> tuple[Sequence[tuple[Key, Owned[str]]], Key | None]:
        self._load()
        return await super().read(after)

    async def get(self, keys: Collection[Key]) -> Mapping[Key, Owned[str]]:
        self._load()
        return await super().get(keys)

    async def apply(self, ready: Sequence[Change[Key, str]]) -> Sequence[Outcome[Key, str]]:
        self._load()
        outcomes = await super().apply(ready)
        try:
            write_atomically(self._path, encode({key: owned.value for key, owned in self.objects.items()}))
        except OSError as error:
            raise Away("dataplane", f"{self._path} cannot be written ({error.strerror})") from error
        return outcomes

    def _load(self) -> None:
        try:
            routes = decode(self._path.read_bytes())
        except FileNotFoundError:
            routes = {}
        except (OSError, BadRoutes) as error:
            raise Away("dataplane", f"{self._path}: {error}; delete it for an empty one") from error
        self.objects = {key: Owned(gateway, "", 0) for key, gateway in routes.items()}


async def seed(worker: Worker) -> None:
    path = wanted_file(worker.paths.state)
    if not path.exists():
        routes = {key_of(f"10.28.{host}.0/26"): f"192.0.2.{host}" for host in range(1, HOSTS + 1)}
        write_atomically(path, encode(routes))


async def routes(worker: Worker) -> None:
    source = WantedRoutes(wanted_file(worker.paths.state))
    intent, sync = PauseGate[Key](), SyncGate({"file": Synced(worker.clock.now())})
    place = Place(
        name="routes",
        source=source,
        target=FileDataplane(dataplane_file(worker.paths.state)),
        gates=(sync, intent),
        kinds=_KINDS,
        show=show,
        same=str.__eq__,
        brake=Brake("routes/brake", _KINDS),
    )
    reconciler = Reconciler(
        place,
        worker.context,
        LoopTimings(audit=Duration(seconds=10)),
    )
    intents = FileIntents(worker.paths, worker.name, worker.clock)
    applied = AppliedIntents(worker.context, reconciler, intent, intents.all)
    here = Scope(ScopeKind.WORKER, "routes")
    worker.handlers |= IntentCommands(worker.context, reconciler, applied, sync, here, intents).handlers()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_watch(worker, source, sync, reconciler))
        tasks.create_task(reconciler.run(worker.stopping))


async def _watch(worker: Worker, source: WantedRoutes, sync: SyncGate, reconciler: Reconciler[Key, str]) -> None:
    while True:
        if source.changed():
            sync.note_source("file", Synced(worker.clock.now(), source.revision))
            reconciler.dirty.mark_all()
        if await worker.stopped(Duration(milliseconds=200)):
            return
