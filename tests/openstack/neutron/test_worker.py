"""The worker that neutron-periodic-workers starts, in Neutron's environment."""

from __future__ import annotations

import pytest

from tests.openstack.neutron.felix import Cloud

_WAIT = "from holdfast.openstack.worker import HoldfastServer; HoldfastServer(['/no/such/holdfast', 'server']).wait()"


def test_a_worker_that_did_not_become_the_server_raises_so_that_neutron_starts_it_again(cloud: Cloud) -> None:
    with pytest.raises(RuntimeError, match="holdfast server was not started: /no/such/holdfast server"):
        cloud.fleet.python(_WAIT)
