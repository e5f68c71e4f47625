"""All kinds in the order of display: desired state, reports, state of Holdfast itself."""

from __future__ import annotations

from typing import Any

from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.model.base.address import shown
from holdfast.model.base.kind import Kind
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS
from holdfast.model.calico.cluster import CLUSTER, FELIX_CONFIGURATION
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS
from holdfast.model.calico.host import HOST
from holdfast.model.calico.migration import MIGRATION
from holdfast.model.calico.policy import POLICY
from holdfast.model.calico.subnet import SUBNET
from holdfast.model.control.handover import HANDOVER
from holdfast.model.control.history_request import HISTORY_ANSWER, HISTORY_REQUEST
from holdfast.model.control.identity import IDENTITY
from holdfast.model.control.intent import INTENT
from holdfast.model.control.leader import LEADER, NEUTRON_LEADER
from holdfast.model.control.leader_history import LEADERSHIP
from holdfast.model.control.mark import MARK
from holdfast.model.control.restart_request import RESTART_REQUEST
from holdfast.model.control.server import SERVER
from holdfast.model.control.step_down_request import STEP_DOWN_REQUEST
from holdfast.model.fleet.agent_report import AGENT_REPORT
from holdfast.model.fleet.balancer_report import BALANCER_REPORT
from holdfast.model.fleet.census import CENSUS, HOST_CENSUS
from holdfast.model.fleet.network import NETWORK
from holdfast.model.fleet.prefixes import FLEET_PREFIXES

KINDS: tuple[Kind[Any, Any], ...] = (
    HOST,
    NETWORK,
    ENDPOINT,
    POLICY,
    MIGRATION,
    SUBNET,
    CLUSTER,
    FELIX_CONFIGURATION,
    FRONTEND,
    BACKEND,
    HEALTH_CHECK,
    AGENT_STATUS,
    LAST_STATUS,
    ENDPOINT_STATUS,
    AGENT_REPORT,
    BALANCER_REPORT,
    FLEET_PREFIXES,
    CENSUS,
    HOST_CENSUS,
    IDENTITY,
    MARK,
    LEADER,
    NEUTRON_LEADER,
    LEADERSHIP,
    HANDOVER,
    RESTART_REQUEST,
    STEP_DOWN_REQUEST,
    HISTORY_REQUEST,
    HISTORY_ANSWER,
    SERVER,
    INTENT,
)

_BY_WORD = {word: kind for kind in KINDS for word in (kind.name, kind.plural)}


def kind_named(word: str) -> Kind[Any, Any]:
    """The kind of that name, in singular or plural. Raises ValueError with a sentence."""
    kind = _BY_WORD.get(word)
    if kind is None:
        known = ", ".join(kind.name for kind in KINDS)
        raise ValueError(f"there is no kind {shown(word)}; known are {known}")
    return kind
