"""Fleet-wide settings that Felix needs on OpenStack. The model's `carry` adds them to what is there."""

from __future__ import annotations

from holdfast.model.base.region import Region
from holdfast.model.calico.cluster import (
    CLUSTER,
    DEFAULT,
    FELIX_CONFIGURATION,
    ClusterInformation,
    ClusterSpec,
    FelixConfiguration,
    FelixSpec,
)
from holdfast.model.calico.resource import Metadata
from holdfast.openstack.translate.outcome import Translated, uid_of

INTERFACES = "tap"


def fleet_objects(region: Region, guid: str) -> tuple[Translated, ...]:
    """Cluster information, without which Felix does not start, and the Felix configuration for endpoint reports.

    `guid` is used only where the store has none. A readiness that was set to false stays: whoever did it has a reason.
    """
    cluster = CLUSTER.key(region, DEFAULT)
    felix = FELIX_CONFIGURATION.key(region, DEFAULT)
    information = ClusterInformation(
        metadata=Metadata(DEFAULT, uid=uid_of(cluster)), spec=ClusterSpec(guid, "openstack", datastore_ready=True)
    )
    configuration = FelixConfiguration(
        metadata=Metadata(DEFAULT, uid=uid_of(felix)),
        spec=FelixSpec(endpoint_reporting_enabled=True, interface_prefix=INTERFACES),
    )
    return Translated(CLUSTER, cluster, information), Translated(FELIX_CONFIGURATION, felix, configuration)
