"""From the configuration to a store: which etcd, with which credentials. Secrets are read when they are needed."""

from __future__ import annotations

import os

from holdfast.config.sections.store import StoreSettings as StoreConfig
from holdfast.runtime.config_file import SecretRefused, file_path, read_secret, secret_file
from holdfast.store.api import StoreRefused
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection


def connection(config: StoreConfig) -> Connection:
    """How to reach the configured store. Raises `SecretRefused`, one sentence."""
    password_file = config.password_file
    return Connection(
        endpoints=config.endpoints,
        ca=file_path(config.ca_file, os.environ) if config.ca_file else None,
        cert=file_path(config.cert_file, os.environ) if config.cert_file else None,
        key=secret_file(config.key_file, os.environ) if config.key_file else None,
        user=config.user or "",
        password=(lambda: _password(password_file)) if password_file else None,
        deadline=config.call_deadline,
    )


def _password(file: str) -> str:
    """One that cannot be read while we run (it is being renewed, say) is a refusal like a wrong one: whoever calls the
    store waits for it to be mended, and nobody dies of it."""
    try:
        return read_secret(file, os.environ)
    except SecretRefused as refused:
        raise StoreRefused(f"store.password_file: {refused}") from refused


def open_store(config: StoreConfig) -> EtcdStore:
    """A client of the configured store. Nothing is connected yet."""
    return EtcdStore(connection(config))
