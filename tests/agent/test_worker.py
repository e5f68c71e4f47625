"""`holdfast agent` as real processes on a real etcd, with the file dataplane."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.agent.claims import RemoteRoute, route
from holdfast.agent.dataplane.file import FileContent, load
from holdfast.agent.journal import frames
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointStatusName
from holdfast.model.calico.host import HOST, REGION_LABEL, Bgp, Host, HostSpec
from holdfast.model.control.identity import IDENTITY, Identity, LatchedVerdict
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.control import Request, ask
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.runtime.daemon.report import WorkerReport, report
from holdfast.store.api import Delete, Entry, Operation, Put
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import Process, folder, wait_until

HOLDFAST = str(Path(sys.executable).parent / "holdfast")
_PATIENCE = 90.0
_numbers = itertools.count(1)


def endpoint(node: str, workload: str, prefix: str) -> Endpoint:
    spec = EndpointSpec(
        orchestrator="holdfast",
        workload=workload,
        node=node,
        endpoint="eth0",
        interface_name=f"tap-{workload}",
        ip_networks=(prefix,),
    )
    return Endpoint.of(Region(), spec)


class Agent:
    """One agent, its etcd and its kernel."""

    def __init__(self, base: Path, cluster: EtcdCluster) -> None:
        self.base = base
        self.region = Region(f"agents-{os.getpid()}-{next(_numbers)}")
        self.host = f"h-{self.region.name}"
        self.kernel = base / "kernel.json"
        self._url = cluster.members[0].url
        settings = {
            "store.endpoints": self._url,
            "store.region": self.region.name,
            "paths.state": f"{base}/state",
            "paths.runtime": f"{base}/run",
            "agent.host": self.host,
            "agent.dataplane.kind": "memory",
            "agent.dataplane.file": str(self.kernel),
            "agent.report_interval": "1s",
            "runtime.backoff_first": "100ms",
        }
        self._flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
        self.process = Process([HOLDFAST, "agent", *self._flags], log=base / "log")

    def put(self, key: bytes, value: bytes) -> None:
        self.write(Put(key, value))

    def write(self, *operations: Operation) -> None:
        """Write everything at one revision."""
        asyncio.run(self._write(operations))

    async def _write(self, operations: Sequence[Operation]) -> None:
        store = EtcdStore(Connection((self._url,)))
        try:
            await store.txn((), operations)
        finally:
            await store.close()

    def get(self, key: bytes) -> Entry | None:
        async def read() -> Entry | None:
            store = EtcdStore(Connection((self._url,)))
            try:
                return await store.get(key)
            finally:
                await store.close()

        return asyncio.run(read())

    def joins(self, name: str, number: int) -> None:
        spec = HostSpec(bgp=Bgp(ipv4_address=f"192.0.2.{number}/24"))
        labels = {REGION_LABEL: self.region.name}
        self.put(HOST.key(self.region, name), HOST.encode(Host.of(name, spec, labels=labels)))

    def runs(self, node: str, workload: str, prefix: str) -> None:
        self.write(self.workload(node, workload, prefix))

    def workload(self, node: str, workload: str, prefix: str) -> Put:
        one = Endpoint.of(self.region, endpoint(node, workload, prefix).spec)
        return Put(ENDPOINT.key(self.region, one.name), ENDPOINT.encode(one))

    def deletion(self, node: str, workload: str) -> Delete:
        return Delete(self.workload(node, workload, "10.66.0.0/32").key)

    def held(self) -> FileContent:
        return load(self.kernel)

    def has(self, prefix: str) -> bool:
        return route(prefix) in {one.key for one in self.held().objects}

    def comes_to_have(self, prefix: str) -> None:
        try:
            wait_until(lambda: self.has(prefix), f"{prefix} is programmed", within=_PATIENCE)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.process.output}") from None

    def worker(self, name: str) -> WorkerReport | None:
        try:
            board = Board.open(self.base / "run" / "agent.board", read_only=True)
        except BoardError:
            return None
        found = report(board, "agent", "", SystemClock().now()).workers
        return next((one for one in found if one.name == name), None)

    def pid(self, name: str) -> int | None:
        worker = self.worker(name)
        return None if worker is None else worker.pid

    def tell(self, do: str, worker: str = "peers", **args: object) -> Any:
        return asyncio.run(ask(self.base / "run" / "agent.sock", Request("tell", {"do": do, "args": args}, worker)))

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [HOLDFAST, *words, "--runtime", str(self.base / "run")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def dry_runs(self, *flags: str) -> str:
        """Output of a dry run."""
        command = [HOLDFAST, "agent", "--dry-run", *self._flags, *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def is_alive(self) -> bool:
        return self.get(AGENT_STATUS.key(self.region, self.host)) is not None


@pytest.fixture
def agent(one_etcd: EtcdCluster) -> Iterator[Agent]:
    with folder() as base:
        one = Agent(base, one_etcd)
        one.put(IDENTITY.key(one.region, "identity"), IDENTITY.encode(Identity("fleet", 1)))
        one.joins(one.host, 1)
        one.joins(f"{one.host}-b", 2)
        one.runs(f"{one.host}-b", "web", "10.65.0.1/32")
        one.runs(one.host, "db", "10.65.0.9/32")
        try:
            yield one
        finally:
            one.process.stop()


def test_an_agent_programs_its_peers_reports_and_a_kill_changes_nothing(agent: Agent) -> None:
    agent.process.start()
    agent.comes_to_have("10.65.0.1/32")
    agent.comes_to_have("10.65.0.9/32")
    wait_until(agent.is_alive, "the host is alive in the store", within=_PATIENCE)
    own = EndpointStatusName.of(agent.region, endpoint(agent.host, "db", "10.65.0.9/32").name)
    status = ENDPOINT_STATUS.key(agent.region, own)
    wait_until(lambda: (agent.get(status) or Entry(b"")).value == b'{"status":"up"}', "its endpoint is up", within=30)
    assert f"{agent.host}-b" in agent.ask("agent", "peers").stdout
    assert "no pending deletes" in agent.ask("agent", "pending").stderr
    assert "is this host; its agent has" in agent.ask("explain", "host", agent.host).stdout
    before, pid = agent.held(), agent.pid("peers")
    agent.process.kill()
    agent.process.start()
    wait_until(lambda: agent.pid("peers") not in (None, pid), "the agent is back", within=_PATIENCE)
    wait_until(lambda: bool(agent.tell("peers").result), "it has looked at everything", within=_PATIENCE)
    assert agent.held() == before


def test_C27_an_agent_that_is_killed_within_the_minute_still_knows_what_it_deleted(agent: Agent) -> None:
    node, prefixes = f"{agent.host}-b", [f"10.66.0.{number}/32" for number in range(30)]
    agent.write(*[agent.workload(node, f"w{n}", prefix) for n, prefix in enumerate(prefixes)])
    agent.process.start()
    for prefix in prefixes:
        agent.comes_to_have(prefix)
    agent.write(*[agent.deletion(node, f"w{n}") for n in range(15)])
    wait_until(lambda: not any(map(agent.has, prefixes[:15])), "15 routes are deleted", within=_PATIENCE)
    agent.process.kill_tree()
    agent.write(*[agent.deletion(node, f"w{n}") for n in range(15, 21)])
    agent.process.start()

    def is_held() -> bool:
        worker = agent.worker("peers")
        return worker is not None and worker.state == "held: brake"

    wait_until(is_held, f"the brake holds:\n{agent.process.output}", within=_PATIENCE)
    assert all(map(agent.has, prefixes[15:]))
    assert "would delete 21 of" in agent.ask("gate", "list").stdout


def test_a_restored_store_keeps_its_routes_until_it_is_adopted_on_the_host(agent: Agent) -> None:
    agent.process.start()
    agent.comes_to_have("10.65.0.1/32")
    verdict = LatchedVerdict("store_restored", "the store went back")
    agent.put(IDENTITY.key(agent.region, "identity"), IDENTITY.encode(Identity("fleet", 1, verdict=verdict)))
    preview = ["agent", "adopt", "--reason", "the backup is right", "--dry-run"]
    wait_until(lambda: "the store went back" in agent.ask(*preview).stdout, "the verdict is known", within=_PATIENCE)
    agent.runs(f"{agent.host}-b", "web", "10.65.0.2/32")
    agent.comes_to_have("10.65.0.2/32")
    wait_until(lambda: "delete   route 10.65.0.1/32" in agent.ask(*preview).stdout, "it is held", within=_PATIENCE)
    assert agent.has("10.65.0.1/32")
    done = agent.ask("agent", "adopt", "--reason", "the backup is right", "--yes")
    assert "the store is accepted for this host" in done.stderr
    wait_until(lambda: not agent.has("10.65.0.1/32"), "the delete is released", within=_PATIENCE)


def test_a_dry_run_prints_the_changes_and_makes_none(agent: Agent) -> None:
    told = subprocess.run([HOLDFAST, "agent", "--dry-run", *agent._flags], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert f"create   route 10.65.0.1/32                       of {agent.host}-b, endpoint" in told.stdout
    assert "held     " not in told.stdout
    assert (agent.kernel.exists(), (agent.base / "run").exists()) == (False, False)


def test_a_dry_run_heeds_a_pause_and_a_source_that_was_forgotten(agent: Agent) -> None:
    agent.process.start()
    agent.comes_to_have("10.65.0.1/32")
    assert agent.ask("pause", "host", agent.host, "--reason", "the rack is moved").returncode == 0
    agent.runs(f"{agent.host}-b", "late", "10.65.0.2/32")
    told = agent.dry_runs()
    assert "held     create route 10.65.0.2/32" in told
    assert "“the rack is moved”" in told
    agent.process.stop()
    scope = Scope(ScopeKind.SOURCE, agent.region.segment)
    since = datetime(2026, 1, 1, tzinfo=UTC)
    intents = [Intent(what=IntentKind.FORGET, scope=scope, who="alice", why="gone", since=since)]
    book = agent.base / "state" / "intents" / "agent.peers.json"
    book.write_bytes(msgspec.json.encode(intents))
    unreachable = agent.dry_runs("--set", "store.endpoints=http://127.0.0.1:1", "--set", "store.call_deadline=1s")
    assert "delete route 10.65.0.9/32" in " ".join(unreachable.split())
    book.write_bytes(b"{")
    assert "fix it, or delete it to drop all intents" in agent.dry_runs()


def test_N17_a_worker_that_hangs_is_replaced_and_goes_on_where_it_was(agent: Agent) -> None:
    agent.process.start()
    agent.comes_to_have("10.65.0.1/32")
    hung = agent.pid("peers")
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    agent.runs(f"{agent.host}-b", "late", "10.65.0.2/32")
    wait_until(lambda: agent.pid("peers") not in (None, hung), "it is replaced", within=_PATIENCE)
    agent.comes_to_have("10.65.0.2/32")
    assert {one.key: one.shape for one in agent.held().objects}[route("10.65.0.1/32")] == RemoteRoute("192.0.2.2")


def test_a_journal_of_a_newer_release_is_waited_for_with_its_sentence_and_left_as_it_is(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = agent.base / "run" / "agent.journal"
    journal.parent.mkdir()
    with monkeypatch.context() as next_release:
        next_release.setattr(frames, "WRITES", frames.READS + 1)
        newer = frames.pack([frames.JournalEntry(frames.EntryKind.ADD, b"k", b"x")], 1)
    journal.write_bytes(newer)
    agent.process.start()

    def waits() -> bool:
        worker = agent.worker("peers")
        return worker is not None and worker.state == "waiting: journal"

    wait_until(waits, f"it waits for its journal:\n{agent.process.output}", within=_PATIENCE)
    shown = agent.ask("status")
    assert "was written by a newer release" in shown.stdout
    assert shown.returncode == 1
    worker = agent.worker("peers")
    assert worker is not None
    assert (worker.restarts, journal.read_bytes()) == (0, newer)


def test_a_host_name_that_no_endpoint_can_begin_with_is_waited_for_in_one_sentence(agent: Agent) -> None:
    flags = ["--set", "agent.host=rack-", "--set", "agent.routing=bgp"]
    refused = "this host can have no endpoints: 'rack-' is empty or begins or ends with a hyphen"
    assert agent.dry_runs(*flags).startswith(f"Error: {refused}")
    process = Process([HOLDFAST, "agent", *agent._flags, *flags], log=agent.base / "log")
    process.start()

    def waits() -> bool:
        worker = agent.worker("peers")
        return worker is not None and worker.state == "waiting: host name" and worker.restarts == 0

    try:
        wait_until(waits, f"it waits:\n{process.output}", within=_PATIENCE)
        assert refused in " ".join(agent.ask("status").stdout.split())
    finally:
        process.kill()


def test_a_second_agent_in_the_same_folder_is_refused_in_one_sentence(agent: Agent) -> None:
    agent.process.start()
    wait_until(lambda: agent.pid("peers") is not None, "the first one runs", within=_PATIENCE)
    second = subprocess.run([HOLDFAST, "agent", *agent._flags], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "agent is already running (pid" in second.stderr
