"""`inventory.database: neutron`: opens Neutron's database with the connection that its own configuration names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg
from oslo_db import options as database_options
from sqlalchemy import Engine, func, make_url, select
from sqlalchemy.exc import DBAPIError

from holdfast.config.sections.inventory import InventorySettings
from holdfast.inventory.api import Inventory, Observed
from holdfast.inventory.open import NotifyArrival
from holdfast.inventory.sql.engine import open_engine
from holdfast.inventory.sql.trial import try_database
from holdfast.inventory.sql.wake import Waker
from holdfast.model.base.region import Region
from holdfast.model.base.time import Duration
from holdfast.openstack import keystone
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.neutron_conf import options_of
from holdfast.openstack.observed import NeutronObserved
from holdfast.openstack.projects import ProjectNames
from holdfast.openstack.tables import CONTROL, OUTBOX
from holdfast.openstack.translate.settings import settings_of
from holdfast.runtime.clock import SystemClock

_POLL_S = 0.25


def open_backend(config: InventorySettings, region: Region) -> NeutronBackend:
    """The inventory of OpenStack, not connected yet. Raises ValueError with a sentence."""
    return NeutronBackend(config.neutron_config, region)


class NeutronBackend:
    """Neutron as the inventory. Its plugin is loaded only where status is written."""

    def __init__(self, files: Sequence[str], region: Region) -> None:
        self._files = files
        self._region = region
        self._engine = open_engine(make_url(_connection(files)))
        self._plugin: Any = None

    def inventory(self) -> Inventory:
        options = options_of(self._files)
        has_keystone = bool(options.get(keystone.SECTION))
        fetch = keystone.KeystoneProjects(self._files)
        projects = ProjectNames(fetch, SystemClock().now) if has_keystone else None
        return NeutronInventory(self._engine, settings_of(self._region, options), projects)

    def observed(self) -> Observed:
        return NeutronObserved(self._engine, self._region, self._loaded)

    def waker(self) -> Waker:
        return NeutronWaker(self._engine)

    @property
    def notify_arrival(self) -> NotifyArrival | None:
        return self._notify

    def try_write(self, server: str) -> None:
        try_database(self._engine, server, CONTROL)

    def close(self) -> None:
        self._engine.dispose()

    async def _notify(self, notice: dict[str, str]) -> str | None:
        port = notice["port"]
        await asyncio.get_running_loop().run_in_executor(None, lambda: self._loaded().notify_arrival(port))
        return None

    def _loaded(self) -> Any:
        if self._plugin is None:
            from holdfast.openstack.plugin import NeutronPlugin

            self._plugin = NeutronPlugin(self._files)
        return self._plugin


class NeutronWaker:
    """Polls the newest row of the outbox: MySQL has no notifications."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen: int | None = None

    async def wait(self, most: Duration) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + most.total_seconds()
        while loop.time() < until:
            try:
                newest = await loop.run_in_executor(None, self._newest)
            except DBAPIError:
                await asyncio.sleep(max(0.0, until - loop.time()))  # the worker itself says that the database is away
                return
            if newest != self._seen:
                self._seen = newest
                return
            await asyncio.sleep(_POLL_S)

    async def close(self) -> None:
        return

    def _newest(self) -> int:
        with self._engine.connect() as connection:
            return connection.execute(select(func.max(OUTBOX.c.id))).scalar_one() or 0


def _connection(files: Sequence[str]) -> str:
    conf = cfg.ConfigOpts()
    conf.register_opts(database_options.database_opts, "database")
    conf([word for file in files for word in ("--config-file", file)], project="neutron")
    url = conf.database.connection
    if not url:
        raise ValueError(f"section [database] of {', '.join(files)} names no connection")
    return str(url)
