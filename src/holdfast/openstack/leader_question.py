"""Asks etcd whether a server leads, from inside Neutron's API. Blocks for two seconds at most."""

from __future__ import annotations

import asyncio

from holdfast.config import ConfigRejected
from holdfast.model.base.region import configured_region
from holdfast.model.control.leader import LEADER
from holdfast.openstack.own_config import own_config
from holdfast.openstack.server_command import CalicoOptions
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.store_client import connection
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.client import EtcdStore

NOBODY = "no holdfast server leads; start neutron-periodic-workers on a controller, and see holdfast doctor"
_MOST_S = 2.0


def why_nobody_leads(options: CalicoOptions, files: list[str]) -> str:
    """Return the reason, with what to do; "" if a server leads."""
    loaded = own_config(options, files)
    if isinstance(loaded, ConfigRejected):
        return f"the configuration of Holdfast is refused: {loaded}"
    key = LEADER.key(configured_region(loaded.config), "leader")

    async def ask() -> bool:
        store = EtcdStore(connection(loaded.config.store))
        try:
            async with asyncio.timeout(_MOST_S):
                return await store.get(key) is not None
        finally:
            await store.close()

    try:
        return "" if asyncio.run(ask()) else NOBODY
    except (StoreAway, StoreError, SecretRefused, TimeoutError) as error:
        why = str(error) or f"nothing within {_MOST_S:g} s"
        return f"etcd does not answer here ({why}); check section [calico]"
