"""A resync on a real Neutron while objects change on either side, held at an exact place by locks of the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from holdfast.testing.fault import fault
from tests.openstack.neutron.felix import Cloud


@contextmanager
def _resync_held(cloud: Cloud, lock: str, at: str, *, in_snapshot: bool = False) -> Iterator[None]:
    """A resync that has come to a statement and waits there for a lock until the block ends."""
    with ThreadPoolExecutor(1) as pool:
        with cloud.fleet.locked(lock):
            resync = pool.submit(cloud.fleet.resync)
            cloud.eventually(lambda: cloud.fleet.waits_for_lock(at, in_snapshot=in_snapshot), "the resync waits")
            yield
        resync.result()


@fault(
    "C21",
    without="holdfast.server.syncer.target:unchanged",
    by="tests.server.syncer.without_protection:whatever_it_is_now",
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
