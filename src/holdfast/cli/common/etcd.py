"""Commands that open etcd themselves, with etcdctl's flags: at 3 a.m. the API may be what is broken."""

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
from holdfast.lab.fleet import fleet
from holdfast.model.base.region import Region
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.store_client import connection
from holdfast.store.api import StoreAway, StoreError
from holdfast.store.client import EtcdStore
from holdfast.store.transport.gateway import Connection

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_FLAGS = {"endpoints": "endpoints", "cacert": "ca_file", "cert": "cert_file", "key": "key_file", "user": "user"}


def store_flags(command: F) -> F:
    """Adds etcdctl's flags; they arrive as `reach`, a `EtcdOptions`."""
    for name, words in (
        ("--region", "The region, where several share an etcd."),
        ("--password-file", "File with the password of --user."),
        ("--user", "Our name in etcd."),
        ("--key", "Key of the client certificate."),
        ("--cert", "Client certificate."),
        ("--cacert", "CA that signed the members' certificates."),
        ("--endpoints", "Members of etcd, separated by commas."),
        ("--config", "Configuration file."),
    ):
        command = click.option(name, help=words)(command)
    return command


class EtcdOptions:
    """Which etcd a command was pointed at: flags above the configuration."""

    def __init__(self, given: dict[str, str | None]) -> None:
        named = {**_FLAGS, "password_file": "password_file", "region": "region"}
        flags = [
            FlagValue(f"--{flag.replace('_', '-')}", f"store.{field}", value)
            for flag, field in named.items()
            if (value := given.get(flag)) is not None
        ]
        loaded = effective(given.get("config"), flags)
        lab = fleet.endpoint(LAB_FOLDER / "state")
        if lab is not None and loaded.origins["store.endpoints"].layer is Layer.DEFAULT:
            click.echo(f"nothing names a store, so this is about the lab in {LAB_FOLDER}", err=True)
            loaded = effective(given.get("config"), [*flags, FlagValue("the lab", "store.endpoints", lab)])
        self.config = loaded.config
        self.is_named = loaded.origins["store.endpoints"].layer is not Layer.DEFAULT
        """Whether anything says which store this is about."""
        self.region = Region(self.config.store.region or "")

    def connection(self) -> Connection:
        try:
            return connection(self.config.store)
        except SecretRefused as refused:
            raise click.ClickException(str(refused)) from refused

    def ask(self, question: Callable[[EtcdStore], Awaitable[R]]) -> R:
        """Runs a question against the store; a store that is away or refuses is one sentence and exit code 1."""
        try:
            return asyncio.run(asked(self.connection(), question))
        except (StoreAway, StoreError) as error:
            raise click.ClickException(str(error)) from error


async def asked(reach: Connection, question: Callable[[EtcdStore], Awaitable[R]]) -> R:
    """The answer to a question, from a store that is opened for it. Raises what the question raises."""
    store = EtcdStore(reach)
    try:
        return await question(store)
    finally:
        await store.close()


def who() -> str:
    """The operator, for the record: also behind sudo."""
    return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name


def state_folder(reach: EtcdOptions) -> Path:
    return Path(reach.config.paths.state)
