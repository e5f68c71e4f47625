from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.agent.dataplane.linux import LinuxDataplane
from holdfast.testing.real.netns import NamespaceNetwork
from tests.agent.dataplane.linux.harness import HostHarness


@pytest.fixture
def site(namespaces: NamespaceNetwork) -> HostHarness:
    return HostHarness(namespaces)


@pytest.fixture
def dataplane(site: HostHarness) -> Iterator[LinuxDataplane]:
    with site.dataplane() as made:
        yield made
