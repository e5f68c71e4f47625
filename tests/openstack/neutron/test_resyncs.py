"""A resync on a real Neutron while objects change on either side, held at an exact place by locks of the database."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.testing.fault import fault
from tests.openstack.neutron.felix import POLICIES, Cloud
from tests.openstack.neutron.server_process import frozen


@contextlib.contextmanager
def _resync_held(cloud: Cloud, lock: str, at: str) -> Iterator[None]:
    """A resync that has come to a statement and waits there for a lock until the block ends."""
    with ThreadPoolExecutor(1) as pool:
        with cloud.fleet.locked(lock):
            resync = pool.submit(cloud.fleet.resync)
            cloud.eventually(lambda: cloud.fleet.waits_for_lock(at), "the resync waits")
            yield
        resync.result()


@fault(
    "C21",
    without="holdfast.server.syncer.target:unchanged",
    by="tests.server.syncer.without_protection:whatever_it_is_now",
    sees=(AssertionError, "addedMeanwhile"),
)
def test_C21_a_resync_does_not_overwrite_what_changed_meanwhile(
    cloud: Cloud, tested_server: Callable[[], None]
) -> None:
    tested_server()
    port = cloud.port()
    stored, key = cloud.stored(port), cloud.endpoint_key(port)
    wrong = {**stored, "spec": {**stored["spec"], "ipv4Gateway": "192.0.2.1"}}
    cloud.in_sync()
    cloud.fleet.put_key(key, wrong)

    # Each batch of writes begins with a mark: here everything was read and decided, and nothing written.
    with _resync_held(cloud, "LOCK TABLES holdfast_marks READ", at="INSERT INTO holdfast_marks"):
        cloud.fleet.put_key(key, {**wrong, "spec": {**wrong["spec"], "addedMeanwhile": "yes"}})

    gateway = stored["spec"]["ipv4Gateway"]
    cloud.eventually(lambda: cloud.stored(port)["spec"]["ipv4Gateway"] == gateway, "the drift is repaired")
    assert cloud.stored(port)["spec"].get("addedMeanwhile") == "yes"


@fault(
    "C22",
    without="holdfast.runtime.reconciler.loop:Reconciler._unchanged_since",
    by="tests.server.syncer.without_protection:as_it_was_listed",
    sees=(AssertionError, r"not fleet\.was_written"),
)
@pytest.mark.usefixtures("tested_server")
def test_C22_a_group_that_is_deleted_while_a_resync_has_read_it_does_not_come_back(cloud: Cloud) -> None:
    fleet, group = cloud.fleet, cloud.fleet.post("security-groups", {"name": "short-lived"})["id"]
    key = f"{POLICIES}ossg.default.{group}"
    cloud.stored(cloud.port())
    cloud.eventually(lambda: bool(fleet.store(key)), "the policy is stored")
    cloud.in_sync()
    fleet.workers.kill_tree()
    fleet.delete_key(key)
    before = fleet.revision()

    # The first resync of a new leader, whose snapshot has the group: it is going to create the policy again. A delete
    # waits for the lock as well, so the resync is stopped before that is given up.
    with contextlib.ExitStack() as stopped:
        with fleet.locked("LOCK TABLES subnetroutes WRITE"):
            fleet.workers.start()
            cloud.eventually(lambda: fleet.waits_for_lock("subnetroutes", in_snapshot=True), "the resync waits")
            stopped.enter_context(frozen(fleet, "syncer"))
        fleet.delete(f"security-groups/{group}")
    cloud.eventually(fleet.resynced, "the server answers")

    assert not fleet.was_written(key, before)
