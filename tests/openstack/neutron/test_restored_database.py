"""A MariaDB that lost commits, as after the failover to a Galera node that was behind, or a restored dump."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.testing.real.neutron import RefusedByNeutron
from tests.openstack.neutron.felix import Cloud

_REASON = "--reason=the database failed over"


def _answered(cloud: Cloud, ask: Callable[[], Any]) -> Any:
    """Ask the API until it answers: its connections to the database were cut."""
    answers: list[Any] = []

    def answers_now() -> bool:
        try:
            answers.append(ask())
        except RefusedByNeutron:
            return False
        return True

    cloud.eventually(answers_now, "Neutron answers again")
    return answers[0]


def _adopt(cloud: Cloud, keep: str) -> tuple[int, str]:
    words = ("inventory", "adopt", f"--keep={keep}", "--yes", _REASON, "--set=inventory.database=neutron")
    return cloud.fleet.operator(*words, f"--set=inventory.neutron_config={cloud.fleet.home / 'neutron.conf'}")


def test_C40_a_database_that_lost_commits_changes_nothing_in_etcd_until_an_operator_decides(
    cloud: Cloud,
) -> None:
    fleet, behind = cloud.fleet, cloud.fleet.home / f"behind-{cloud.number}"
    deleted = cloud.port()
    cloud.stored(deleted)
    fleet.database.copy(behind)
    fleet.start_database()
    made = _answered(cloud, cloud.port)
    cloud.stored(made)
    _answered(cloud, lambda: fleet.delete(f"ports/{deleted['id']}"))
    cloud.eventually(lambda: cloud.endpoint(deleted) is None, "the deleted endpoint is gone")
    cloud.in_sync()

    fleet.database.restore(behind)
    fleet.start_database()

    cloud.eventually(lambda: "inventory adopt" in fleet.operator("status")[1], "the verdict is shown")
    code, shown = fleet.check()
    assert code == 1, shown
    assert cloud.endpoint(made) is not None, "lost in the database, and running on its host"
    assert cloud.endpoint(deleted) is None, "deleted, and its address may have a new owner"
    later = _answered(cloud, cloud.port)
    cloud.stored(later)

    code, shown = _adopt(cloud, "store")
    assert (code, "Neutron cannot follow the store" in shown) == (1, True)
    code, shown = _adopt(cloud, "inventory")
    assert code == 0, shown
    cloud.in_sync()
    assert cloud.endpoint(made) is None
    assert cloud.endpoint(deleted) is not None
    assert cloud.endpoint(later) is not None
