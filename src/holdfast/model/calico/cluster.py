"""Calico's two fleet-wide settings: cluster identity and Felix configuration. Both are named `default`.

Other orchestrators and operators write them too, so ours are minimum demands: `carry` adds them to what is there.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from holdfast.model.base.keys import calico, named
from holdfast.model.base.kind import Column, Kind
from holdfast.model.calico.resource import Resource, carry_metadata, full_name

DEFAULT = "default"


class ClusterSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """Identity of the cluster for Calico. `datastore_ready` is false while somebody suspends Calico on purpose."""

    cluster_guid: str = msgspec.field(default="", name="clusterGUID")
    cluster_type: str = ""
    datastore_ready: bool | None = None


class ClusterInformation(Resource[ClusterSpec], frozen=True, gc=False, tag="ClusterInformation"):
    """A ClusterInformation."""


class FelixSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """The two Felix settings that OpenStack needs; all others belong to the operator and are kept."""

    endpoint_reporting_enabled: bool | None = None
    interface_prefix: str = ""


class FelixConfiguration(Resource[FelixSpec], frozen=True, gc=False, tag="FelixConfiguration"):
    """A FelixConfiguration; `default` is for all hosts, `node.<name>` for one."""


def _carry_cluster(new: ClusterInformation, old: ClusterInformation) -> ClusterInformation:
    """Keep the identity and a readiness that was set; add our type to those of other orchestrators."""
    spec = replace(
        new.spec,
        cluster_guid=old.spec.cluster_guid or new.spec.cluster_guid,
        cluster_type=_listed(old.spec.cluster_type, new.spec.cluster_type),
        datastore_ready=new.spec.datastore_ready if old.spec.datastore_ready is None else old.spec.datastore_ready,
    )
    return replace(carry_metadata(new, old), spec=spec)


def _carry_felix(new: FelixConfiguration, old: FelixConfiguration) -> FelixConfiguration:
    """Keep the interface prefixes that are there, and add ours."""
    prefix = _listed(old.spec.interface_prefix, new.spec.interface_prefix)
    return replace(carry_metadata(new, old), spec=replace(new.spec, interface_prefix=prefix))


def _listed(there: str, wanted: str) -> str:
    """A list separated by commas, with the wanted words that it lacks."""
    if not there:
        return wanted
    words = there.split(",")
    return ",".join((there, *(word for word in wanted.split(",") if word and word not in words)))


CLUSTER: Kind[ClusterInformation, str] = Kind(
    name="cluster",
    plural="clusters",
    struct=ClusterInformation,
    place=named(calico("clusterinformations")),
    columns=(
        Column("CLUSTER", lambda name, _: name),
        Column("GUID", lambda _, cluster: cluster.spec.cluster_guid),
        Column("TYPE", lambda _, cluster: cluster.spec.cluster_type),
        Column("READY", lambda _, cluster: str(cluster.spec.datastore_ready is True).lower()),
    ),
    tail=full_name,
    carry=_carry_cluster,
)

FELIX_CONFIGURATION: Kind[FelixConfiguration, str] = Kind(
    name="felix-configuration",
    plural="felix-configurations",
    struct=FelixConfiguration,
    place=named(calico("felixconfigurations")),
    columns=(
        Column("NAME", lambda name, _: name),
        Column("REPORTING", lambda _, felix: str(felix.spec.endpoint_reporting_enabled is True).lower()),
        Column("INTERFACES", lambda _, felix: felix.spec.interface_prefix),
    ),
    tail=full_name,
    carry=_carry_felix,
)
