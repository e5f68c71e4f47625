"""Access to etcd for commands that read it directly, with etcdctl's flags: they work while no daemon does."""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.common.config_flags import effective
from holdfast.cli.common.control_socket import LAB_FOLDER
from holdfast.config import FlagValue, Layer
from holdfast.lab.fleet import layout
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

    def __init__(self, given: dict[str, str | None]) -> None:
        named = {**_FLAGS, "password_file": "password_file", "region": "region"}
        flags = [
            FlagValue(f"--{flag.replace('_', '-')}", f"store.{field}", value)
            for flag, field in named.items()
            if (value := given.get(flag)) is not None
        ]
        loaded = effective(given.get("config"), flags)
        lab = layout.endpoint(LAB_FOLDER / "state")
        if lab is not None and loaded.origins["store.endpoints"].layer is Layer.DEFAULT:
            click.echo(f"no store is configured: using the lab in {LAB_FOLDER}", err=True)
            loaded = effective(given.get("config"), [*flags, FlagValue("the lab", "store.endpoints", lab)])
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
        """Run a query against the store; an unreachable store ends the command with one sentence and exit code 1."""
        try:
            return asyncio.run(query_store(self.connection(), query))
        except (StoreAway, StoreError) as error:
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


def operator() -> str:
    """Return the name of the operator, also behind sudo."""
    return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
