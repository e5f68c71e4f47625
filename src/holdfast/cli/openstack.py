"""`holdfast openstack check`: the differences between Neutron and etcd, as the leader's syncer finds them."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.change.resync import print_differences
from holdfast.cli.common.control_socket import runtime_flag
from holdfast.cli.common.format import output_flag
from holdfast.model.calico.policy import POLICY
from holdfast.model.calico.subnet import SUBNET
from holdfast.openstack.translate.policy import POLICY_NAME


@click.group()
def openstack() -> None:
    """Compare Neutron with etcd."""


@openstack.command()
@click.option("--security-group", "group", metavar="ID", help="Only the policy of this security group.")
@click.option("--subnet", metavar="ID", help="Only this subnet.")
@click.option("--worker", help="Syncer to ask, in a lab DAEMON/syncer. Default: the leader's.")
@output_flag
@runtime_flag
def check(group: str | None, subnet: str | None, worker: str | None, output: str, runtime: Path) -> None:
    """Show what differs between Neutron and etcd, and change nothing. Exits with 1 if anything differs.

    Drift is what a resync fixes. An object that etcd has and Neutron lacks is listed as recorded if Neutron's database
    witnessed its deletion, and as unwitnessed, and held, if not. Run it on the leader's machine.
    """
    if group and subnet:
        raise click.UsageError("give either --security-group or --subnet.")
    scope: dict[str, str | None] = {}
    if group:
        scope = {"kind": POLICY.plural, "name": f"{POLICY_NAME}{group}"}
    elif subnet:
        scope = {"kind": SUBNET.plural, "name": subnet}
    print_differences(runtime, worker, output, **scope)
