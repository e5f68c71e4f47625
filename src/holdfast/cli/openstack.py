"""`holdfast openstack`: the differences between Neutron and etcd, and their repair.

`check` reads both itself, so it works before the first start and while no server runs. `resync` compares the same way,
and has the leader repair: every write needs its term.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.change.resync import compare, print_outcome, show_differences
from holdfast.cli.common.config_flags import configuration_flags, effective
from holdfast.cli.common.control_socket import CannotTell, leading, runtime_flag
from holdfast.cli.common.etcd import query_store
from holdfast.cli.common.format import output_flag
from holdfast.config import Config, FlagValue
from holdfast.inventory.open import NoInventory, open_backend
from holdfast.inventory.sql.thread import DatabaseThread
from holdfast.model.base.region import configured_region
from holdfast.openstack.check import NeutronCheck
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.neutron_conf import calico_section
from holdfast.openstack.server_command import server_settings
from holdfast.reconcile import Away
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.config_file import SecretRefused
from holdfast.runtime.store_client import connection
from holdfast.store.api import Store, StoreAway, StoreError

F = TypeVar("F", bound=Callable[..., Any])

_MOST_KEYS = 200
"""Keys that fit into one request to the leader. If more differ, it compares everything."""


@click.group()
def openstack() -> None:
    """Compare Neutron with etcd, and repair etcd."""


def _scope_flags(command: F) -> F:
    """Add the scopes, and the ways to name the configuration."""
    for name, text in (
        ("--network", "Only the ports and subnets of this network."),
        ("--subnet", "Only this subnet and the ports with an address in it."),
        ("--security-group", "Only the policy of this security group and its ports."),
        ("--port", "Only this port."),
    ):
        command = click.option(name, metavar="ID", default="", help=text)(command)
    command = click.option(
        "--neutron-config",
        metavar="FILE",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False),
        help="neutron.conf, and again for each further file, such as ml2_conf.ini; instead of --config.",
    )(command)
    return configuration_flags(command)


@openstack.command()
@_scope_flags
@output_flag
def check(output: str, **given: Any) -> None:
    """Show what differs between Neutron and etcd, and change nothing. Exits with 1 if anything differs or a row of
    Neutron has no form in Calico, and with 3 if Neutron's database or etcd cannot be read.

    Drift is what a resync fixes. An object that etcd has and Neutron lacks is listed as recorded if Neutron's database
    witnessed its deletion, and as unwitnessed, and held, if not. Needs no running server.
    """
    report, _ = _compared(**given)
    show_differences(report, output, lines=[*_leaks(report), *_refused(report), *_unrecorded(report)])
    if report["refused"]:
        raise click.exceptions.Exit(1)


@openstack.command()
@_scope_flags
@output_flag
@runtime_flag
def resync(output: str, runtime: Path, **given: Any) -> None:
    """Compare Neutron with etcd, and have the leader fix etcd. Run it on the leader's machine.

    Unwitnessed objects stay held; `holdfast openstack check` lists them.
    """
    report, keys = _compared(**given)
    if not keys:
        show_differences(report, output)
        return
    try:
        syncer = leading(runtime, "syncer")
    except CannotTell as error:
        raise CannotTell(
            f"{len(keys):,} differ, and nothing was repaired: no server runs here that could. Run this on the "
            "leader's machine (holdfast leader names it), or start neutron-periodic-workers"
        ) from error
    some = sorted(key.decode() for key in keys) if len(keys) <= _MOST_KEYS else []
    print_outcome(compare(runtime, syncer, keys=some), output)


def _compared(
    config_file: str | None, settings: Sequence[FlagValue], neutron_config: Sequence[str], **scope: str
) -> tuple[dict[str, Any], Collection[bytes]]:
    """Compare what the configuration names. Ends the command if Neutron's database or etcd does not answer."""
    scope = {name.removeprefix("security_"): one for name, one in scope.items() if one}
    if len(scope) > 1:
        raise click.UsageError("give one of --network, --subnet, --security-group and --port.")
    config = _config(config_file, settings, neutron_config)
    region = configured_region(config)
    try:
        backend = open_backend(config.inventory, region)
        inventory = backend.inventory()
        if not isinstance(inventory, NeutronInventory):
            raise click.ClickException("inventory.database is not neutron: give --neutron-config, or --config")
        thread = DatabaseThread("check")

        async def run(store: Store) -> tuple[dict[str, Any], Collection[bytes]]:
            chosen = await thread(lambda: inventory.scope(**scope))
            return await NeutronCheck(inventory, store, region, chosen, thread, SystemClock().now).run()

        try:
            return asyncio.run(query_store(connection(config.store), run))
        finally:
            thread.close()
            backend.close()
    except (NoInventory, SecretRefused, ValueError, Away, StoreAway, StoreError) as error:
        raise CannotTell(str(error)) from error


def _config(config_file: str | None, settings: Sequence[FlagValue], files: Sequence[str]) -> Config:
    """The configuration; Neutron's files name etcd and the database as they do for the server beside it."""
    if not files:
        return effective(config_file, settings).config
    options = calico_section(files)
    resolved = [str(Path(file).resolve()) for file in files]
    named = [FlagValue("--neutron-config", name, text) for name, text in server_settings(options, resolved).items()]
    return effective(config_file or options.config or None, [*named, *settings]).config


def _leaks(report: dict[str, Any]) -> Sequence[str]:
    """Say what the leaked endpoints leave open."""
    lines = []
    for one in report["leaks"]:
        groups = f" in security groups {', '.join(one['groups'])}" if one["groups"] else ""
        lines.append(f"leaked: {one['key']} with {', '.join(one['addresses']) or 'no address'}{groups}")
        for address, port in one["reused"].items():
            lines.append(f"  port {port} has {address} now, and inherits the access that these groups give")
    return lines


def _refused(report: dict[str, Any]) -> Sequence[str]:
    """Name rows of Neutron that are left out, whatever the scope: a resync does not fix them."""
    return [f"not expressible in Calico, left out: {one}" for one in report["refused"]]


def _unrecorded(report: dict[str, Any]) -> Sequence[str]:
    count = report["unrecorded"]
    sentence = (
        f"{count:,} keys are not recorded yet: a delete of them that is not made through Neutron's API would not be "
        "witnessed. The leader records them after its first resync"
    )
    return [sentence] if count else []
