"""Helpers of the restore drills: fleets that are reused while they are whole, operator's commands, Calico's objects."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.model.base.bad import Bad
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.store.identity import identity_key
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster
from holdfast.testing.real.fleet import REGION, RealFleet, real_fleet
from holdfast.testing.real.kernel_recorder import KernelRecorder, recorded
from holdfast.testing.real.postgres import Postgres
from holdfast.testing.real.processes import wait_until
from holdfast.testing.real.servers import ServerGroup
from tests.chaos.harness import patient_store

PATIENCE = 120.0
"""Seconds that a busy machine may need for anything that is not measured."""
SECONDS = 30.0
"""Upper bound for what must happen without a person, on a busy machine; an idle one needs a tenth of that."""


def holdfast(fleet: RealFleet, *words: str) -> Result:
    """Run a command as an operator of this fleet would."""
    return CliRunner().invoke(main, [*words, "--runtime", str(fleet.runtime)])


def holdfast_on(flags: Sequence[str], *words: str) -> Result:
    """Run a command that asks no daemon."""
    return CliRunner().invoke(main, [*words, *flags])


def configured(fleet: RealFleet) -> Sequence[str]:
    """Return the flags of commands that open inventory and store themselves."""
    return ["--set", f"inventory.database={fleet.database}", "--set", f"store.endpoints={fleet.cluster.endpoints[0]}"]


def adopt_store(fleet: RealFleet) -> str:
    """Accept the restored store, and return what the command printed."""
    done = holdfast(fleet, "store", "adopt", "--yes", "--reason", "the disk of etcd was lost")
    assert done.exit_code == 0, done.output
    return done.output


def adopt_inventory(fleet: RealFleet, keep: str) -> str:
    """Decide which side is right after a restore of the database, and return what the command printed."""
    words = ["--keep", keep, "--yes", "--reason", "restored the dump of last night", *configured(fleet)]
    done = holdfast(fleet, "inventory", "adopt", *words)
    assert done.exit_code == 0, done.output
    return done.output


def status(fleet: RealFleet) -> Result:
    return holdfast(fleet, "status")


def wait_healthy(fleet: RealFleet, within: float = PATIENCE) -> None:
    """Wait until `holdfast status` exits with 0, with every worker at work."""
    pages: list[Result] = []

    def healthy() -> bool:
        pages[:] = [status(fleet)]
        return pages[0].exit_code == 0 and "starting" not in pages[0].output

    try:
        wait_until(healthy, "holdfast status exits with 0", within=within)
    except TimeoutError as late:
        raise TimeoutError(f"{late}\n{pages[0].output}") from late


def wait_told(fleet: RealFleet, *words: str, within: float = PATIENCE) -> str:
    """Wait until `holdfast status` exits with 1 and its page has all of these words; return the page."""
    pages: list[Result] = []

    def told() -> bool:
        pages[:] = [status(fleet)]
        return pages[0].exit_code == 1 and all(word in pages[0].output for word in words)

    try:
        wait_until(told, f"holdfast status says {words}", within=within)
    except TimeoutError as late:
        raise TimeoutError(f"{late}\n{pages[0].output}") from late
    return pages[0].output


def wait_refilled(fleet: RealFleet, within: float = SECONDS) -> None:
    """Wait until the store has everything that the inventory wants; it may have more."""
    wait_until(
        lambda: fleet.wanted().items() <= fleet.stored().items(), "the store has all that is wanted", within=within
    )


def identity(fleet: ServerGroup) -> Identity | None:
    found = fleet.read(identity_key(REGION))
    if found is None:
        return None
    decoded = IDENTITY.decode(b"", base64.b64decode(found["value"]))
    assert not isinstance(decoded, Bad)
    return decoded


def is_full(fleet: ServerGroup, *, above: int = 0) -> bool:
    """Return whether the store has an identity of an epoch above that one and is no longer being filled."""
    found = identity(fleet)
    return found is not None and found.epoch > above and not found.filling


def wait_full(fleet: ServerGroup, *, above: int = 0) -> None:
    """Wait until the store, under an epoch above that one, is no longer being filled."""
    wait_until(lambda: is_full(fleet, above=above), "the store is filled", within=PATIENCE)


def edit_much(fleet: RealFleet, *, creates: int, moves: int, deletes: int, reuses: int, seed: int = 19) -> None:
    """Create, move and delete workloads, and give addresses of deleted ones to new ones on the other host."""
    random = Random(seed)
    first = max(fleet.live, default=0) + 1
    fleet.place({number: 1 + number % 2 for number in range(first, first + creates)})
    old = sorted(number for number in fleet.live if number < first)
    chosen = random.sample(old, moves + deletes + reuses)
    fleet.place({number: 3 - fleet.live[number].node for number in chosen[:moves]})
    fleet.place(dict.fromkeys(chosen[moves : moves + deletes]))
    fleet.reuse_addresses({number: 3 - fleet.live[number].node for number in chosen[moves + deletes :]})


def calico_objects(count: int) -> Mapping[bytes, bytes]:
    """Return that many Nodes and WorkloadEndpoints as Calico's OpenStack driver and Felix write them."""
    found = {}
    for number in range(1, count + 1):
        node, device, port = f"compute-{number}", f"843c1d87-a5c8-{number:04}", f"8e80eb60-cae1-{number:04}"
        found[f"nodes/{node}"] = {
            "kind": "Node",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {"name": node, "uid": f"n-{number}", "creationTimestamp": "2026-03-01T08:00:00Z"},
            "spec": {"bgp": {"ipv4Address": f"198.51.100.{number}/24"}},
        }
        name = "-".join(part.replace("-", "--") for part in (node, "openstack", device, port))
        found[f"workloadendpoints/openstack/{name}"] = {
            "kind": "WorkloadEndpoint",
            "apiVersion": "projectcalico.org/v3",
            "metadata": {
                "name": name,
                "namespace": "openstack",
                "uid": f"e-{number}",
                "creationTimestamp": "2026-03-01T08:00:00Z",
                "annotations": {"openstack.projectcalico.org/network-id": "5b4a"},
                "labels": {
                    "sg.projectcalico.org/openstack-91c2": "default",
                    "projectcalico.org/namespace": "openstack",
                    "projectcalico.org/orchestrator": "openstack",
                },
            },
            "spec": {
                "orchestrator": "openstack",
                "workload": device,
                "node": node,
                "endpoint": port,
                "interfaceName": f"tap8e80eb-{number}",
                "mac": f"fa:16:3e:00:00:{number:02x}",
                "ipv4Gateway": "10.77.0.1",
                "ipNetworks": [f"10.77.0.{number + 1}/32"],
            },
        }
    prefix = "/calico/resources/v3/projectcalico.org/"
    return {f"{prefix}{key}".encode(): json.dumps(value).encode() for key, value in found.items()}


def put(cluster: EtcdCluster, objects: Mapping[bytes, bytes]) -> None:
    async def write() -> None:
        store = patient_store(cluster)
        for key, value in objects.items():
            await store.put(key, value)
        await store.close()

    asyncio.run(write())


def split_moves(fleet: RealFleet, moved: Mapping[bytes, bytes]) -> list[str]:
    """Return the moves, old key to new key, that were not one transaction in the store."""

    async def read() -> list[str]:
        store = patient_store(fleet.cluster)
        found = []
        for old, new in moved.items():
            entry = await store.get(new)
            assert entry is not None, f"{new!r} is not in the store"
            if await store.get(old, revision=entry.mod_revision) is not None:
                found.append(f"{new!r} was put before {old!r} was deleted")
            elif await store.get(old, revision=entry.mod_revision - 1) is None:
                found.append(f"{old!r} was deleted before {new!r} was put")
        await store.close()
        return found

    return asyncio.run(read())


class Fleets:
    """One fleet on PostgreSQL and a single etcd, given from drill to drill while it is whole."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self._held = contextlib.ExitStack()
        self._fleet: RealFleet | None = None

    def whole(self) -> RealFleet:
        """Return the fleet of the last drill if nothing is wrong with it, else a new one."""
        if self._fleet is not None:
            for server in self._fleet.members:
                if not server.process.alive:
                    server.start()
            with contextlib.suppress(TimeoutError):
                wait_healthy(self._fleet, within=10)
                return self._fleet
            self.close()
        cluster = self._held.enter_context(etcd_cluster(1))
        self._fleet = self._held.enter_context(fleet_on(cluster, self._postgres.create_database(), servers=2))
        return self._fleet

    def close(self) -> None:
        self._fleet = None
        self._held.close()


@contextlib.contextmanager
def fleet_on(cluster: EtcdCluster, database: str, *, servers: int = 1, workloads: int = 60) -> Iterator[RealFleet]:
    """Run a fleet with workloads, and wait until all of them are programmed everywhere."""
    with real_fleet(cluster, database, servers=servers) as fleet:
        try:
            fleet.place({number: 1 + number % 2 for number in range(1, workloads + 1)})
            fleet.wait_settled()
            wait_healthy(fleet)
        except (TimeoutError, RuntimeError):
            sys.stderr.write(_logs(fleet))
            raise
        yield fleet


@contextlib.contextmanager
def drill(fleet: RealFleet) -> Iterator[KernelRecorder]:
    """Sample the dataplanes until the block ends: nothing that they have now may be missing or different in any sample,
    and no workload may be reported down. Prints the daemons' logs if that fails, or the block."""
    logged = {one.name: len(one.process.output) for one in fleet.members}
    try:
        with recorded(fleet.kernels) as record:
            yield record
        assert not (found := record.faults()), "; ".join(found[:12])
        downs = [line for one in fleet.members for line in _downs(one.process.output[logged[one.name] :])]
        assert not downs, "reported down: " + "; ".join(downs)
    except BaseException:
        sys.stderr.write(_logs(fleet))
        raise


def _downs(log: str) -> list[str]:
    """Return the lines of a server's log that report workloads which were up as no longer up."""
    entries = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [
        f"{one['timestamp']}: {one['keys']}: {one['values']}"
        for one in entries
        if one.get("place") == "endpoint-status" and str(one.get("values", "")).startswith("ACTIVE →")
    ]


def _logs(fleet: RealFleet) -> str:
    parts = [(one.name, one.process.output) for one in fleet.members]
    parts += [(name, agent.output) for name, agent in fleet.agents.items()]
    return "\n".join(f"--- {name}\n{text[-6000:]}" for name, text in parts)


def copy_of(file: Path, to: Path) -> Path:
    """Copy a SQLite file as a backup does: consistent, while it is in use."""
    with contextlib.closing(sqlite3.connect(file)) as source, contextlib.closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to
