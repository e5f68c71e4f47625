"""Opens the configured database. The password is read from its file when it is needed."""

from __future__ import annotations

import os

from sqlalchemy import Engine

from holdfast.config.sections.inventory import InventorySettings
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.runtime.config_file import read_secret


class NoInventory(Exception):
    """No database is configured. The message is one sentence."""


def configured_engine(config: InventorySettings) -> Engine:
    """An engine for the configured database, not connected yet. Raises `NoInventory`, `SecretRefused` or ValueError."""
    if config.database is None:
        raise NoInventory(
            "no inventory is configured: set inventory.database, such as sqlite:////var/lib/holdfast/inventory.db"
        )
    password = read_secret(config.password_file, os.environ) if config.password_file else None
    return open_engine(database_url(config.database, password))
