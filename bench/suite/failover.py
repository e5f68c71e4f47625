"""Failover: time without a leader when a leader dies, freezes or stops, and time until its successor writes.

Three etcd members, two fleets of three real servers, each with a leader-only worker that writes five times a second.
Times are read from etcd every few milliseconds: from the signal to the new leader key, and from there to the first
write under it. Election timings have the proportions of the defaults.

- kill: SIGKILL for the leader's whole process tree. Each server runs in a PID namespace of its own, so that the others
  know no more about its death than they could on another host: its lease must expire.
- same host: the same without namespaces; another server sees that the process is gone, and deletes its key.
- graceful: SIGTERM for the supervisor.
- freeze: SIGSTOP for the whole tree until another server leads, then SIGCONT; counts the old leader's writes that were
  accepted afterwards, from etcd's own history.
"""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from bench.benchmark import Benchmark, Unmeasurable
from holdfast.lab.fleet import server as member
from holdfast.lab.fleet.fenced_writer import WriterCounts, WriterEntry, writes_prefix
from holdfast.lab.fleet.history_check import read_history, violations, writes_after
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from holdfast.testing.real.processes import Unavailable, wait_until
from holdfast.testing.real.servers import ServerGroup, ServerProcess, server_group

SERVERS = 3
POLL_S = 0.003
PATIENCE_S = 60.0


class Options(msgspec.Struct, frozen=True):
    trials: Annotated[int, msgspec.Meta(ge=1, description="trials of each kind")] = 3
    ttl: Annotated[int, msgspec.Meta(ge=2, le=60, description="TTL of the leader's lease in seconds")] = 5


class Figures(msgspec.Struct, frozen=True):
    kill_s: list[float]
    same_host_kill_s: list[float]
    graceful_s: list[float]
    freeze_old_term_writes: int
    takeover_work_s: list[float]


@dataclass
class Trials:
    """One fleet, and the times until its new leaders wrote."""

    fleet: ServerGroup
    took_to_work: list[float] = field(default_factory=list)

    def handover(self, end: Callable[[ServerProcess], None]) -> float:
        """End the leader, and return the time until another one leads. The fleet is complete again afterwards."""
        self.fleet.wait_all_run()
        term, old = self.fleet.wait_led()
        self._poll(lambda: works(self.fleet, term), "the leader works")
        began = time.monotonic()
        end(old)
        self._poll(lambda: term_of(self.fleet) > term, "another server leads")
        led = time.monotonic()
        self._poll(lambda: works(self.fleet, term_of(self.fleet)), "the new leader works")
        self.took_to_work.append(time.monotonic() - led)
        wait_until(lambda: not old.process.alive, "the old leader has ended", within=PATIENCE_S)
        old.start()
        return led - began

    def freeze(self) -> int:
        """Freeze the leader past its lease, and count its writes that were accepted after the new term began."""
        self.fleet.wait_all_run()
        term, old = self.fleet.wait_led()
        before = counts(old)
        old.freeze()
        newer, new = self.fleet.wait_led(after=term, within=PATIENCE_S)
        wait_until(lambda: works(self.fleet, newer), f"{new.name} works", within=PATIENCE_S)
        old.thaw()
        wait_until(lambda: counts(old).refused > before.refused, "the fence refuses the old leader", within=PATIENCE_S)
        history = read_history(self.fleet.cluster.endpoints[0], self.fleet.region)
        return writes_after(history, newer, old.name) + len(violations(history))

    def _poll(self, condition: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until:
                raise Unmeasurable(f"{what}: not within {PATIENCE_S:g} s")
            time.sleep(POLL_S)


def term_of(fleet: ServerGroup) -> int:
    seat = fleet.current_leader()
    return seat[0] if seat else 0


def works(fleet: ServerGroup, term: int) -> bool:
    """Return True if a write under that term has been accepted."""
    entries = [fleet.read(writes_prefix(fleet.region) + one.name.encode()) for one in fleet.members]
    written = [msgspec.json.decode(base64.b64decode(one["value"]), type=WriterEntry) for one in entries if one]
    return any(one.term == term for one in written)


def counts(server: ServerProcess) -> WriterCounts:
    return msgspec.convert(server.ask("writer", "counts").result or {}, WriterCounts, strict=False)


def timings(ttl: int) -> Mapping[str, str]:
    """Return the default timings, scaled to another TTL."""
    deadline = ttl * 2_000 // 3
    return {
        "server.ttl": f"{ttl}s",
        "server.renew_every": f"{ttl * 2_000 // 15}ms",
        "server.renew_deadline": f"{deadline}ms",
        "server.rpc_timeout": f"{deadline // 2}ms",
    }


def terminate(server: ServerProcess) -> None:
    os.kill(server.process.pid, signal.SIGTERM)


@contextlib.contextmanager
def trials(cluster: EtcdCluster, ttl: int, *, isolated: bool) -> Iterator[Trials]:
    made = server_group(cluster, SERVERS, command=member.command, settings=timings(ttl), isolated=isolated)
    with made as fleet:
        yield Trials(fleet)


def measure(options: Options) -> Figures:
    try:
        with etcd_cluster(3) as cluster:
            return _measure(cluster, options)
    except (Unavailable, TimeoutError) as error:
        raise Unmeasurable(str(error)) from error


def _measure(cluster: EtcdCluster, options: Options) -> Figures:
    rounds = range(options.trials)
    with trials(cluster, options.ttl, isolated=True) as far:
        killed = [far.handover(ServerProcess.kill) for _ in rounds]
    with trials(cluster, options.ttl, isolated=False) as near:
        killed_here = [near.handover(ServerProcess.kill) for _ in rounds]
        stopped = [near.handover(terminate) for _ in rounds]
        late = near.freeze()
    return Figures(killed, killed_here, stopped, late, [*far.took_to_work, *near.took_to_work])


BENCHMARK = Benchmark(Options, measure)
