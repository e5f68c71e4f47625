"""Helpers of the chaos tests: start servers, ask which one leads, and check that every write was fenced."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast.lab.fleet.fenced_writer import WriterCounts, WriterEntry, writes_prefix
from holdfast.lab.fleet.history_check import History, read_history, violations
from holdfast.lab.fleet.server import command
from holdfast.model.base.time import Duration
from holdfast.runtime.control import Answer
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import (
    STARTED_WITHIN,
    Command,
    ServerGroup,
    ServerProcess,
    ask_any,
    frozen,
    server_group,
)

_ROOT = Path(__file__).parent.parent.parent
TTL = 3.0
DEADLINE = 2.0
STEADY = {"server.ttl": "8s", "server.renew_deadline": "6s"}
"""For tests in which a leader must not lose its lease on a busy machine, and another server soon takes over."""
SHIPPED_TIMINGS = {
    "server.ttl": "15s",
    "server.renew_every": "2s",
    "server.renew_deadline": "10s",
    "server.rpc_timeout": "5s",
}
"""The defaults, for tests in which no lease is to run out: with short ones a busy machine may cost a leader its own."""


@contextlib.contextmanager
def servers(
    cluster: EtcdCluster,
    names: int | Sequence[str],
    *,
    settings: Mapping[str, str] = {},
    isolated: bool = False,
    command: Command = command,
) -> Iterator[ServerGroup]:
    """Start servers and wait until one leads and works. At the end, check the whole history of writes."""
    made = server_group(cluster, names, command=command, settings=settings, isolated=isolated)
    with or_skip(made) as fleet:
        try:
            wait_working(fleet, within=STARTED_WITHIN)
            fleet.wait_all_run()
            yield fleet
            assert_faultless(fleet)
        except BaseException:
            for server in fleet.members:
                sys.stderr.write(f"--- {server.name}\n{server.process.output}\n")
            raise


def patient_store(cluster: EtcdCluster) -> EtcdStore:
    """Return a store client of the test's own: on a busy machine a call may take longer than a daemon would wait."""
    return EtcdStore(Connection(tuple(cluster.endpoints), deadline=Duration(seconds=60)))


def module_command(settings: Sequence[str], module: str) -> Sequence[str]:
    """Return the command line that starts a server of the tests' own."""
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return ["/usr/bin/env", f"PYTHONPATH={path}", sys.executable, "-m", module, *settings]


def answer(server: ServerProcess, worker: str, do: str) -> Any:
    """Return a worker's answer; retry while it is starting or busy."""
    said: list[Answer] = []

    def answers() -> bool:
        said[:] = [server.ask(worker, do)]
        return not said[0].error

    wait_until(answers, f"the {worker} of {server.name} answers {do}")
    return said[0].result


def step_down(server: ServerProcess, **args: object) -> None:
    """Ask a leader to step down, as soon as another server can take over."""
    wait_until(
        lambda: not server.ask("elector", "step-down", reason="kernel update", **args).error,
        f"{server.name} steps down",
        within=60,
    )


def counts(server: ServerProcess) -> WriterCounts:
    return msgspec.convert(answer(server, "writer", "counts"), WriterCounts, strict=False)


def assert_faultless(fleet: ServerGroup) -> None:
    found = violations(history(fleet))
    assert not found, "; ".join(found)


def history(fleet: ServerGroup) -> History:
    serving = next(one for one in fleet.cluster.members if one.process.alive and not frozen(one.process.pid))
    return read_history(serving.url, fleet.region)


def wait_working(fleet: ServerGroup, *, after: int = 0, within: float = 30.0) -> tuple[int, ServerProcess]:
    """Wait until a server leads under a term above `after` and writes under it now.

    Its key and its earlier writes prove nothing: they outlive a leader that has just stepped down or died."""
    looked: dict[int, int] = {}
    seats: list[tuple[int, ServerProcess]] = []

    def works() -> bool:
        term, leader = fleet.wait_led(after=after, within=within)
        seats[:] = [(term, leader)]
        key = writes_prefix(fleet.region) + leader.name.encode()
        said = ask_any(fleet.cluster, "/v3/kv/range", {"key": base64.b64encode(key).decode()})
        since = looked.setdefault(term, int(said["header"]["revision"])) if said else 0
        return any(_term(one) == term and int(one["mod_revision"]) > since for one in said.get("kvs", ()))

    wait_until(works, f"somebody leads after term {after} and works", within=within)
    return seats[0]


def _term(write: Mapping[str, str]) -> int:
    return msgspec.json.decode(base64.b64decode(write["value"]), type=WriterEntry).term


def why_ended(fleet: ServerGroup, term: int, *, before: int) -> str:
    """Return why a term ended, once its successor of term `before` is in the history."""
    wait_until(lambda: fleet.leader_history()[-1].term >= before, f"term {before} is in the history")
    return next(period.why for period in fleet.leader_history() if period.term == term)
