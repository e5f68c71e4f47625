"""A leader that cannot do a leader's work, and others that could."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.testing.fault import fault
from holdfast.testing.real.etcd import EtcdCluster
from holdfast.testing.real.servers import ServerProcess
from tests.chaos.harness import servers, wait_working, why_ended

_ROOT = Path(__file__).parent.parent.parent


def command(settings: Sequence[str]) -> Sequence[str]:
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    return [
        "/usr/bin/env",
        f"PYTHONPATH={path}",
        sys.executable,
        "-m",
        "tests.chaos.server_without_database",
        *settings,
    ]


def take_database_away(server: ServerProcess) -> None:
    (server.home / "state" / "database-away").touch()


@fault("C33", without="holdfast.server.election.worker:successor", returns=None)
def test_C33_a_leader_without_its_database_gives_way_to_a_server_that_has_one(cluster: EtcdCluster) -> None:
    with servers(cluster, 2, command=command) as fleet:
        term, old = wait_working(fleet)
        take_database_away(old)
        newer, new = wait_working(fleet, after=term, within=10)
        assert new is not old
        assert why_ended(fleet, term, before=newer) == "it could not do a leader's work, and another server can"
