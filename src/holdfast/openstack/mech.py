"""ML2 mechanism driver `holdfast`: binds ports as taps, and records every change in the outbox.

Every hook writes one keys-only row in the transaction of the change; that of a delete also records the keys that it
takes from the store, so that it is witnessed even if no resync has seen them. After the commit of a port it only looks,
from time to time, whether anybody takes these rows: the syncer polls the outbox. Groups, rules, floating addresses and
QoS policies have no hook in ML2; they come as PRECOMMIT events of their own plugins. Address groups have no event
before the commit; SQLAlchemy tells of their addresses when it writes them.
"""

from __future__ import annotations

import logging
from functools import cache, partial
from typing import Any

from neutron.db.models import address_group
from neutron.plugins.ml2.drivers import mech_agent
from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events, registry, resources
from neutron_lib.db import api as db_api
from neutron_lib.services.qos import base as qos_base
from neutron_lib.services.qos import constants as qos
from oslo_config import cfg
from sqlalchemy import event, func, select

from holdfast.config import ConfigRejected
from holdfast.model.base.region import Region, configured_region
from holdfast.openstack.agent_type import AGENT_TYPE
from holdfast.openstack.leader_question import why_nobody_leads
from holdfast.openstack.mirror import expect_delete
from holdfast.openstack.options import OPTIONS, SECTION
from holdfast.openstack.outbox import (
    Changed,
    record,
    record_groups_that_admit,
    record_groups_with_rules_for,
    record_port_of,
)
from holdfast.openstack.own_config import own_config
from holdfast.openstack.tables import OUTBOX
from holdfast.openstack.translate.keys import NeutronResource
from holdfast.openstack.unattended import UnattendedOutbox
from holdfast.openstack.worker import HoldfastServer, calico_conf, config_files, holdfast_arguments
from holdfast.runtime.clock import SystemClock

_VIF_TYPE = "tap"
_NETWORK_TYPES = (constants.TYPE_LOCAL, constants.TYPE_FLAT)

LOG = logging.getLogger(__name__)

cfg.CONF.register_opts(OPTIONS, SECTION)


class HoldfastDriver(mech_agent.SimpleAgentMechanismDriverBase):  # type: ignore[misc]
    """The driver. It works while etcd is away: it asks there only why changes wait."""

    def __init__(self) -> None:
        super().__init__(AGENT_TYPE, _VIF_TYPE, {portbindings.CAP_PORT_FILTER: True})
        self._outbox = UnattendedOutbox(lambda: why_nobody_leads(calico_conf(cfg.CONF), config_files(cfg.CONF)))

    def initialize(self) -> None:
        _subscribe()
        self.qos_driver = HoldfastQos()

    def get_workers(self) -> list[Any]:
        return [HoldfastServer(holdfast_arguments(cfg.CONF))]

    def get_allowed_network_types(self, agent: Any) -> tuple[str, ...]:
        return _NETWORK_TYPES

    def get_mappings(self, agent: Any) -> dict[str, str]:
        return {}

    def check_segment_for_agent(self, segment: Any, agent: Any) -> bool:
        return segment["network_type"] in _NETWORK_TYPES

    def get_vif_details(self, context: Any, agent: Any, segment: Any) -> dict[str, Any]:
        """The tap's MAC follows from the port's, so that a live migration does not change the gateway's MAC."""
        mac = str(context.current["mac_address"])
        return {**self.vif_details, "mac_address": f"fe:{mac.partition(':')[2]}"}

    def create_port_precommit(self, context: Any) -> None:
        super().create_port_precommit(context)
        self._record_port(context)

    def update_port_precommit(self, context: Any) -> None:
        super().update_port_precommit(context)
        self._record_port(context)

    def delete_port_precommit(self, context: Any) -> None:
        _record_delete(context.plugin_context.session, Changed.PORT, NeutronResource("port", context.current["id"]))

    def _record_port(self, context: Any) -> None:
        record(context.plugin_context.session, Changed.PORT, context.current["id"])

    def update_network_precommit(self, context: Any) -> None:
        record(context.plugin_context.session, Changed.NETWORK, context.current["id"])

    def create_subnet_precommit(self, context: Any) -> None:
        record(context.plugin_context.session, Changed.SUBNET, context.current["id"])

    def create_port_postcommit(self, context: Any) -> None:
        """Warn if nobody takes the changes; a failed look must not fail a change that is committed."""
        try:
            warning = self._outbox.look(partial(_oldest, context.plugin_context), SystemClock().now())
        except Exception as error:  # noqa: BLE001 -- whatever Neutron's session raises
            warning = f"cannot look at the outbox: {error}"
        if warning:
            LOG.warning("holdfast: %s", warning)

    update_port_postcommit = create_port_postcommit
    delete_port_postcommit = create_port_postcommit

    update_subnet_precommit = create_subnet_precommit

    def delete_subnet_precommit(self, context: Any) -> None:
        _record_delete(context.plugin_context.session, Changed.SUBNET, NeutronResource("subnet", context.current["id"]))


class HoldfastQos(qos_base.DriverBase):  # type: ignore[misc]
    """Records changes of QoS policies. Felix limits bandwidth and packets, in both directions."""

    def __init__(self) -> None:
        limits = {
            qos.RULE_TYPE_BANDWIDTH_LIMIT: {
                qos.MAX_KBPS: {"type:range": [0, 2**31 - 1]},
                qos.MAX_BURST: {"type:range": [0, 2**31 - 1]},
                qos.DIRECTION: {"type:values": constants.VALID_DIRECTIONS},
            },
            qos.RULE_TYPE_PACKET_RATE_LIMIT: {
                qos.MAX_KPPS: {"type:range": [0, 2**31 - 1]},
                qos.MAX_BURST_KPPS: {"type:range": [0, 2**31 - 1]},
                qos.DIRECTION: {"type:values": constants.VALID_DIRECTIONS},
            },
        }
        super().__init__("holdfast", [_VIF_TYPE], [portbindings.VNIC_NORMAL], limits)

    def update_policy_precommit(self, context: Any, policy: Any) -> None:
        record(context.session, Changed.QOS, policy.id)

    create_policy_precommit = update_policy_precommit
    delete_policy_precommit = update_policy_precommit


@cache
def _region() -> Region | None:
    """The region that the server writes to. None, with a warning, if its configuration is refused: a delete in Neutron
    must not fail for that."""
    loaded = own_config(calico_conf(cfg.CONF), config_files(cfg.CONF))
    if isinstance(loaded, ConfigRejected):
        LOG.warning("holdfast: keys of deleted objects are not recorded: the configuration is refused: %s", loaded)
        return None
    return configured_region(loaded.config)


def _record_delete(session: Any, kind: Changed, resource: NeutronResource) -> None:
    revision, region = record(session, kind, resource.id), _region()
    if revision is not None and region is not None:
        session.flush()
        expect_delete(session.connection(), resource, revision, region)


def _oldest(context: Any) -> int | None:
    """The id of the oldest row of the outbox; None if there is none."""
    with db_api.CONTEXT_READER.using(context):
        number: int | None = context.session.execute(select(func.min(OUTBOX.c.id))).scalar_one()
    return number


def _subscribe() -> None:
    created, updated, deleted = events.PRECOMMIT_CREATE, events.PRECOMMIT_UPDATE, events.PRECOMMIT_DELETE
    for each in (created, updated, deleted):
        registry.subscribe(_on_group, resources.SECURITY_GROUP, each)
        registry.subscribe(_on_floating_ip, resources.FLOATING_IP, each)
    for each in (created, deleted):
        registry.subscribe(_on_rule, resources.SECURITY_GROUP_RULE, each)
    for flushed in ("after_insert", "after_delete"):
        event.listen(address_group.AddressAssociation, flushed, _on_address)


def _on_address(_mapper: Any, connection: Any, address: Any) -> None:
    """An address of an address group is written or deleted, in the transaction of this connection."""
    record_groups_with_rules_for(connection, address.address_group_id)


def _on_group(_resource: Any, what: Any, _trigger: Any, payload: Any) -> None:
    session, group = payload.context.session, payload.resource_id
    if what != events.PRECOMMIT_DELETE:
        record(session, Changed.GROUP, group)
        return
    record_groups_that_admit(session, group)
    _record_delete(session, Changed.GROUP, NeutronResource("security-group", group))


def _on_rule(_resource: Any, _what: Any, _trigger: Any, payload: Any) -> None:
    """A deleted rule names its group in the metadata, a created one in its state."""
    group = (payload.metadata or {}).get("security_group_id")
    if group is None and payload.states:
        group = payload.states[0]["security_group_id"]
    record(payload.context.session, Changed.RULES, group)


def _on_floating_ip(_resource: Any, what: Any, _trigger: Any, payload: Any) -> None:
    """The port before and the port after; when the address is deleted, Neutron names only its own port."""
    session = payload.context.session
    if what == events.PRECOMMIT_DELETE:
        record_port_of(session, payload.resource_id)
        return
    # The last state is what the caller sent, in a form that differs from event to event.
    for port in {payload.states[0].get("port_id"), payload.desired_state.fixed_port_id}:
        record(session, Changed.PORT, port)
