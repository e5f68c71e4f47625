"""Roles that `holdfast store roles` prints, on a real etcd: a stolen host cannot rewrite the fleet."""

from __future__ import annotations

import asyncio
import os
import shlex
import subprocess
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from holdfast.cli import main
from holdfast.store.api import Delete, Put, StoreError
from holdfast.store.transport.gateway import Connection
from holdfast.testing.real.processes import tool
from tests.store.harness import opened
from tests.store.servers import plain_etcd, switch_authentication_on

PASSWORD = "secret"
OWN, FELIX = "/holdfast/v1/no-region/", "/calico/felix/v2/no-region/host/"
RESOURCES = "/calico/resources/v3/projectcalico.org/"
AGENT, BALANCER, SERVER = "holdfast-agent-r1-01", "holdfast-balancer-lb-1", "holdfast-server"

MAY_WRITE = {
    AGENT: [f"{OWN}agents/r1-01", f"{FELIX}r1-01/status", f"{FELIX}r1-01/workload/openstack/w/endpoint/e"],
    BALANCER: [f"{OWN}balancers/lb-1"],
    SERVER: [f"{OWN}leader", f"{OWN}intents/pause/fleet", f"{RESOURCES}nodes/r1-01", f"{OWN}identity"],
}
MAY_NOT_WRITE = {
    "the leader": f"{OWN}leader",
    "a pause": f"{OWN}intents/pause/fleet",
    "an allow": f"{OWN}intents/allow/worker/syncer",
    "the identity": f"{OWN}identity",
    "the census": f"{OWN}fleet/census",
    "the census of its host": f"{OWN}census/r1-01",
    "a host": f"{RESOURCES}nodes/r1-02",
    "an endpoint": f"{RESOURCES}workloadendpoints/openstack/e",
    "another agent": f"{OWN}agents/r1-02",
    "an agent with a longer name": f"{OWN}agents/r1-011",
    "another host's status": f"{FELIX}r1-02/status",
    "a longer host's status": f"{FELIX}r1-011/status",
    "another balancer": f"{OWN}balancers/lb-2",
    "the leader of Neutron": "/calico/openstack/v2/no-region/neutron_election",
    "anything else": "/registry/pods",
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an etcd with the printed roles, and authentication on."""
    printed = CliRunner().invoke(main, ["store", "roles", "--host", "r1-01", "--balancer", "lb-1"])
    assert printed.exit_code == 0, printed.output
    with plain_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        for line in printed.stdout.splitlines():
            command, *words = shlex.split(line)
            if words[:2] == ["user", "add"]:
                words[2] += f":{PASSWORD}"
            call = [tool(command), f"--endpoints={etcd.url}", *words]
            subprocess.run(call, env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True, timeout=60)
        switch_authentication_on(etcd.url, PASSWORD)
        yield etcd.url


def attempt(url: str, user: str, key: str) -> str:
    """Write and delete a key as that user; return the refusal, or nothing."""

    async def main() -> str:
        async with opened(Connection((url,), user=user, password=lambda: PASSWORD)) as store:
            try:
                await store.txn([], [Put(key.encode(), b"{}")])
                await store.txn([], [Delete(key.encode())])
            except StoreError as error:
                return str(error)
            return ""

    return asyncio.run(main())


@pytest.mark.parametrize("user", MAY_WRITE)
def test_each_role_writes_what_its_daemon_reports(guarded: str, user: str) -> None:
    assert {key: attempt(guarded, user, key) for key in MAY_WRITE[user]} == dict.fromkeys(MAY_WRITE[user], "")


@pytest.mark.parametrize("user", [AGENT, BALANCER])
def test_a_stolen_host_writes_nothing_of_the_fleet(guarded: str, user: str) -> None:
    for what, key in MAY_NOT_WRITE.items():
        assert f"denies user {user} this key: its role lacks it" in attempt(guarded, user, key), what


@pytest.mark.parametrize("user", [AGENT, BALANCER, "holdfast-reader"])
def test_every_daemon_reads_what_is_shared(guarded: str, user: str) -> None:
    async def main() -> None:
        async with opened(Connection((guarded,), user=user, password=lambda: PASSWORD)) as store:
            for prefix in (OWN, RESOURCES):
                await store.get(f"{prefix}x".encode())

    asyncio.run(main())


def test_a_name_that_would_reach_other_keys_is_refused() -> None:
    for name in ("", "a/b", "a\nb"):
        refused = CliRunner().invoke(main, ["store", "roles", "--host", name])
        assert refused.exit_code != 0, refused.output
        assert not refused.stdout
