"""Live migrations of a workload from one host to another, as Calico's LiveMigration.

Written before the endpoint at the target and named like it; the endpoint at the source stays during the migration.
"""

from __future__ import annotations

import msgspec

from holdfast.model.base.keys import KeySpace, namespaced
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.name import NameRefused, join
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import EndpointName, Orchestrator, read_name
from holdfast.model.calico.resource import Metadata, Resource, carry_identity, full_name


class Side(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={"orchestrator": "orchestratorID", "workload": "workloadID", "endpoint": "endpointID"},
):
    """An endpoint in Felix's form: the workload includes its namespace, `openstack/843c1d87-…`."""

    hostname: str
    orchestrator: Orchestrator
    workload: str
    endpoint: str

    @property
    def name(self) -> EndpointName:
        return EndpointName(self.hostname, self.orchestrator, self.workload.rpartition("/")[2], self.endpoint)


class End(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """Wrapper of one side on the wire."""

    workload_endpoint: Side


class MigrationSpec(msgspec.Struct, frozen=True, gc=False):
    """Source and target."""

    source: End
    target: End


class Migration(Resource[MigrationSpec], frozen=True, gc=False, tag="LiveMigration"):
    """A LiveMigration."""

    @property
    def source(self) -> EndpointName:
        return self.spec.source.workload_endpoint.name

    @property
    def target(self) -> EndpointName:
        return self.spec.target.workload_endpoint.name

    @classmethod
    def of(cls, region: Region, source: EndpointName, host: str) -> Migration:
        """The migration of an endpoint to another host."""
        target = source._replace(node=host)
        spec = MigrationSpec(_end(region, source), _end(region, target))
        return cls(metadata=Metadata(join(target), region.namespace), spec=spec)


def _end(region: Region, name: EndpointName) -> End:
    workload = f"{region.namespace}/{name.workload}"
    return End(Side(name.node, name.orchestrator, workload, name.endpoint))


def _tail(migration: Migration) -> str:
    if join(migration.target) != migration.metadata.name:
        raise NameRefused("the name of the migration differs from that of the endpoint at its target")
    return full_name(migration)


def _carry(new: Migration, old: Migration) -> Migration:
    """Keep a new uid: it marks another migration between the same hosts, started after the old one was cancelled, and
    its arrival must be notified, too."""
    return new if new.metadata.uid else carry_identity(new, old)


MIGRATION: Kind[Migration, EndpointName] = Kind(
    name="migration",
    plural="migrations",
    struct=Migration,
    place=KeySpace(namespaced("livemigrations"), join, read_name),
    columns=(
        Column("NAME", lambda name, _: name.individual),
        Column("ENDPOINT", lambda name, _: name.endpoint),
        Column("WORKLOAD", lambda name, _: name.workload),
        Column("FROM", lambda _, migration: migration.source.node),
        Column("TO", lambda name, _: name.node),
    ),
    tail=_tail,
    carry=_carry,
)
