"""Names of projects come from Keystone; without it endpoints are written all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.real.openstack_peers import Keystone
from tests.openstack.neutron.felix import Cloud

_LABEL = "projectcalico.org/openstack-project-"


@pytest.fixture
def keystone(cloud: Cloud) -> Iterator[Keystone]:
    """Keystone with the project of all tests in it."""
    found = cloud.fleet.keystone
    found.projects["p"] = {"name": "demo project", "parent_id": "default"}
    cloud.fleet.resync()
    yield found
    found.is_away = False
    found.projects.clear()
    cloud.fleet.resync()


def _project(cloud: Cloud, port: dict[str, str]) -> dict[str, str]:
    labels = cloud.stored(port)["metadata"]["labels"]
    return {name.removeprefix(_LABEL): text for name, text in labels.items() if name.startswith(_LABEL)}


def test_an_endpoint_has_the_name_and_the_parent_of_its_project(cloud: Cloud, keystone: Keystone) -> None:
    port = cloud.port()
    assert _project(cloud, port) == {"id": "p", "name": "demo_project", "parent-id": "default"}

    keystone.projects["p"]["name"] = "renamed"
    cloud.fleet.resync()

    assert _project(cloud, port)["name"] == "renamed"


def test_while_keystone_is_away_endpoints_are_written_and_keep_the_names_that_they_have(
    cloud: Cloud, keystone: Keystone
) -> None:
    named = cloud.port()
    assert _project(cloud, named)["name"] == "demo_project"
    keystone.is_away = True
    cloud.restart_server()  # what it had read is gone

    nameless = cloud.port()
    assert _project(cloud, nameless) == {"id": "p"}
    assert _project(cloud, named)["name"] == "demo_project"
    assert "names of projects are unknown" in cloud.fleet.workers.output

    keystone.is_away = False
    cloud.fleet.resync()
    assert _project(cloud, nameless)["name"] == "demo_project"
