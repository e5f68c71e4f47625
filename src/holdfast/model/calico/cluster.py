"""Calico's two fleet-wide settings: cluster identity and Felix configuration. Both are named `default`."""

from __future__ import annotations

import msgspec

from holdfast.model.base.keys import calico, named
from holdfast.model.base.kind import Column, Kind
from holdfast.model.calico.resource import Resource, carry_identity, full_name

DEFAULT = "default"


class ClusterSpec(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """Identity of the cluster for Calico. Set only if absent."""

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
    carry=carry_identity,
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
    carry=carry_identity,
)
