"""Endpoint status: the report of an agent on one endpoint of its host, in Felix's key and format."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from holdfast.model.base.keys import KeySpace, felix
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.name import NameRefused, escape, segments, unescape
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import EndpointName


class EndpointState(StrEnum):
    """Reported state of an endpoint."""

    UP = "up"
    DOWN = "down"
    ERROR = "error"


class EndpointStatusName(NamedTuple):
    """Reporting host and endpoint. Felix writes the workload with its namespace: `openstack/843c1d87-…`."""

    host: str
    orchestrator: str
    workload: str
    endpoint: str

    @classmethod
    def of(cls, region: Region, name: EndpointName, host: str | None = None) -> EndpointStatusName:
        """The status of an endpoint as reported by its own host, or by another one (the target of a migration)."""
        workload = f"{region.namespace}/{name.workload}"
        return cls(name.node if host is None else host, name.orchestrator, workload, name.endpoint)

    @property
    def device(self) -> str:
        """The workload without its namespace, as an endpoint's spec has it."""
        return self.workload.rpartition("/")[2]


class EndpointStatus(msgspec.Struct, frozen=True, gc=False):
    """One report."""

    status: EndpointState


def _write(name: EndpointStatusName) -> str:
    host, orchestrator, workload, endpoint = map(escape, name)
    return f"{host}/workload/{orchestrator}/{workload}/endpoint/{endpoint}"


def _read(rest: str) -> EndpointStatusName | None:
    parts = segments(rest)
    if len(parts) != 6 or parts[1] != "workload" or parts[4] != "endpoint":
        if len(parts) > 2 and parts[1] == "workload":
            raise NameRefused("after /workload/ come orchestrator, workload, the word endpoint, and the endpoint")
        return None
    return EndpointStatusName(unescape(parts[0]), unescape(parts[2]), unescape(parts[3]), unescape(parts[5]))


ENDPOINT_STATUS: Kind[EndpointStatus, EndpointStatusName] = Kind(
    name="endpoint-status",
    plural="endpoint-statuses",
    struct=EndpointStatus,
    place=KeySpace(felix, _write, _read),
    columns=(
        Column("ENDPOINT", lambda name, _: name.endpoint),
        Column("HOST", lambda name, _: name.host),
        Column("STATUS", lambda _, status: status.status.value),
        Column("WORKLOAD", lambda name, _: name.device),
        Column("ORCHESTRATOR", lambda name, _: name.orchestrator, wide=True),
    ),
)
