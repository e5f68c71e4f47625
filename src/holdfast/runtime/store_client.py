"""Opens the configured store: endpoints and credentials. Secrets are read when they are needed."""

from __future__ import annotations

import os
import socket

from holdfast.config.sections.store import StoreSettings
from holdfast.model.base.time import Duration
from holdfast.runtime.config_file import SecretRefused, file_path, read_secret, secret_file
from holdfast.store.api import StoreRefused
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection


def connection(config: StoreSettings) -> Connection:
    """Return the connection settings of the configured store. Raises `SecretRefused`."""
    password_file = config.password_file
    return Connection(
        endpoints=config.endpoints,
        host=socket.gethostname(),
        ca=file_path(config.ca_file, os.environ) if config.ca_file else None,
        cert=file_path(config.cert_file, os.environ) if config.cert_file else None,
        key=secret_file(config.key_file, os.environ) if config.key_file else None,
        user=config.user or "",
        password=(lambda: _password(password_file)) if password_file else None,
        deadline=config.call_deadline,
    )


def _password(file: str) -> str:
    """Read the password. An unreadable file (while it is being renewed, for example) counts as a wrong password:
    callers of the store wait for it to be fixed, and no process exits."""
    try:
        return read_secret(file, os.environ)
    except SecretRefused as refused:
        raise StoreRefused(f"store.password_file: {refused}") from refused


def open_store(config: StoreSettings, *, relist_spread: Duration = Duration(0)) -> EtcdStore:
    """Return a client of the configured store, not connected yet. Processes that run on every host spread their lists
    of large prefixes."""
    return EtcdStore(connection(config), relist_spread=relist_spread)
