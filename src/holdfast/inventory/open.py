"""Opens the configured inventory. Passwords are read from their files when they are needed.

Inventories that are not SQL databases of our own come from other packages, which name them in the entry point group
`holdfast.inventory`; `neutron` comes with the extra `openstack`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from sqlalchemy import Engine

from holdfast.config.sections.inventory import NEUTRON, InventorySettings
from holdfast.inventory.api import Inventory, Observed
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.inventory.sql.objects import SqlInventory
from holdfast.inventory.sql.observed import SqlObserved
from holdfast.inventory.sql.trial import try_database
from holdfast.inventory.sql.wake import Waker, waker
from holdfast.model.base.region import Region
from holdfast.runtime.config_file import file_path, read_secret

NotifyArrival = Callable[[dict[str, str]], Awaitable[str | None]]
"""Sends one notification of a live migration that has arrived. Returns what went wrong, if anything did."""

ENTRY_POINTS = "holdfast.inventory"


class NoInventory(Exception):
    """No database is configured. The message is one sentence."""


class InventoryBackend(Protocol):
    """A source of truth: desired state, observed state, and wake-ups. Nothing is connected before it is used."""

    def inventory(self) -> Inventory: ...

    def observed(self) -> Observed: ...

    def waker(self) -> Waker: ...

    @property
    def notify_arrival(self) -> NotifyArrival | None:
        """Notifies the owner of the workloads of an arrival; None where a webhook does that."""
        ...

    def try_write(self, server: str) -> None:
        """Read, and write something that is rolled back. Raises `DatabaseAway`."""
        ...

    def close(self) -> None: ...


class SqlBackend:
    """The inventory of a fleet without OpenStack."""

    notify_arrival: NotifyArrival | None = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def inventory(self) -> Inventory:
        return SqlInventory(self._engine)

    def observed(self) -> Observed:
        return SqlObserved(self._engine)

    def waker(self) -> Waker:
        return waker(self._engine)

    def try_write(self, server: str) -> None:
        try_database(self._engine, server)

    def close(self) -> None:
        self._engine.dispose()


def open_backend(config: InventorySettings, region: Region) -> InventoryBackend:
    """The configured inventory. Raises `NoInventory`, `SecretRefused` or ValueError."""
    if not config.is_neutron:
        return SqlBackend(configured_engine(config))
    found = next(iter(entry_points(group=ENTRY_POINTS, name=NEUTRON)), None)
    try:
        load = None if found is None else found.load()
    except ImportError as error:
        raise NoInventory(
            f"inventory.database is neutron, and Neutron cannot be imported here ({error}): {_EXTRA}"
        ) from error
    if load is None:
        raise NoInventory(f"inventory.database is neutron, and this Holdfast does not provide it: {_EXTRA}")
    backend: InventoryBackend = load(config, region)
    return backend


_EXTRA = "install holdfast[server,openstack] into the environment of Neutron"


def configured_engine(config: InventorySettings, *, create: bool = False) -> Engine:
    """An engine for the configured database, not connected yet; `create` makes the file of SQLite, in a folder that
    exists. Raises `NoInventory`, `SecretRefused` or ValueError."""
    if config.database is None:
        raise NoInventory(
            "no inventory is configured: set inventory.database, such as sqlite:////var/lib/holdfast/inventory.db"
        )
    if config.is_neutron:
        raise NoInventory("the inventory is Neutron's: change it through Neutron, and see holdfast openstack check")
    password = read_secret(config.password_file, os.environ) if config.password_file else None
    ca_file = str(file_path(config.ca_file, os.environ)) if config.ca_file else None
    url = database_url(config.database, password, ca_file)
    if create and url.get_backend_name() == "sqlite" and not (folder := Path(str(url.database)).parent).is_dir():
        raise NoInventory(f"folder {folder} does not exist: create it, for the user that holdfast server runs as")
    return open_engine(url, create=create)
