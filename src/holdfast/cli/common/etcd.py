"""Access to etcd for commands that read it directly, with etcdctl's flags: they work while no daemon does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.common.config_flags import effective_or_defaults
from holdfast.cli.common.control_socket import CannotTell
from holdfast.cli.common.lab_inventory import store_or_lab
from holdfast.config import ConfigRejected, FlagValue, Layer, Loaded
from holdfast.model.base.region import configured_region
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.store_client import connection
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_FLAGS = {"endpoints": "endpoints", "cacert": "ca_file", "cert": "cert_file", "key": "key_file", "user": "user"}


def store_flags(command: F) -> F:
    """Add etcdctl's flags; they arrive as keyword arguments for `EtcdOptions`."""
    for name, text in (
        ("--region", "Region, where several share an etcd."),
        ("--password-file", "File with the password of --user."),
        ("--user", "User name in etcd."),
        ("--key", "Key of the client certificate."),
        ("--cert", "Client certificate."),
        ("--cacert", "CA certificate of the etcd members."),
        ("--endpoints", "URLs of etcd members, separated by commas."),
        ("--config", "Configuration file."),
    ):
        command = click.option(name, help=text)(command)
    return command


class EtcdOptions:
    """The etcd that a command reads: flags override the configuration."""

    def __init__(self, given: dict[str, str | None], *, in_diagnosis: bool = False) -> None:
        """With `in_diagnosis` a configuration that cannot be used is kept as `rejected`, and the defaults are used."""
        named = {**_FLAGS, "password_file": "password_file", "region": "region"}
        flags = [
            FlagValue(f"--{flag.replace('_', '-')}", f"store.{field}", value)
            for flag, field in named.items()
            if (value := given.get(flag)) is not None
        ]
        self.rejected: ConfigRejected | None = None
        loaded: Loaded | None = None
        if in_diagnosis:
            loaded, self.rejected = effective_or_defaults(given.get("config"), flags)
        if loaded is None or self.rejected is None:
            loaded = store_or_lab(given.get("config"), flags)
        self.config = loaded.config
        self.is_named = loaded.origins["store.endpoints"].layer is not Layer.DEFAULT
        """False if neither a flag nor the configuration names a store."""
        self.region = configured_region(self.config)

    def connection(self) -> Connection:
        try:
            return connection(self.config.store)
        except SecretRefused as refused:
            raise click.ClickException(str(refused)) from refused

    def query(self, query: Callable[[EtcdStore], Awaitable[R]]) -> R:
        """Run a query against the store. An unreachable one ends the command with exit code 3: nothing can be told."""
        try:
            return asyncio.run(query_store(self.connection(), query))
        except StoreAway as error:
            raise CannotTell(str(error)) from error
        except StoreError as error:
            raise click.ClickException(str(error)) from error

    @property
    def state_folder(self) -> Path:
        return Path(self.config.paths.state)


async def query_store(connection: Connection, query: Callable[[EtcdStore], Awaitable[R]]) -> R:
    """Connect to a store, run a query and disconnect. Raises what the query raises."""
    store = EtcdStore(connection)
    try:
        return await query(store)
    finally:
        await store.close()
