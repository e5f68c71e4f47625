"""Neutron's own plugin inside a status worker: agents and port status through the functions that its agents use.

These writes are Neutron's transactions: they cannot be fenced. They are idempotent, and the status worker confirms its
term with etcd just before a batch. A report from a host that the port is not bound to never reaches the port.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from neutron import manager
from neutron.common import config
from neutron.db import provisioning_blocks
from neutron.plugins.ml2 import db as ml2_db
from neutron_lib import constants
from neutron_lib import context as neutron_context
from neutron_lib.callbacks import resources
from neutron_lib.plugins import directory
from oslo_config import cfg
from oslo_db.exception import DBConnectionError

from holdfast.inventory.api import DatabaseAway
from holdfast.openstack.agent_type import AGENT_TYPE
from holdfast.openstack.bound_host import is_bound_to

_BINARY = "calico-felix"


class NeutronPlugin:
    """The core plugin, loaded in this process. Creating it takes seconds and 100 MB: only status workers do."""

    def __init__(self, files: Sequence[str]) -> None:
        config.register_common_config_options()
        config.init([word for file in files for word in ("--config-file", file)])
        config.set_config_defaults()
        manager.init()
        self._plugin = directory.get_plugin()

    @property
    def agent_down_time(self) -> int:
        return int(cfg.CONF.agent_down_time)

    def register_agent(self, host: str) -> None:
        """Create the agent of a host, or give it a fresh heartbeat."""
        state = {
            "agent_type": AGENT_TYPE,
            "binary": _BINARY,
            "host": host,
            "topic": constants.L2_AGENT_TOPIC,
            "configurations": {},
            "start_flag": True,
        }
        with _database_errors():
            self._plugin.create_or_update_agent(self._context(), state)

    def set_port_status(self, port: str, host: str, status: str) -> bool:
        """Set the status of a port that is bound to that host. Returns False if it is not bound there."""
        context = self._context()
        with _database_errors():
            if not is_bound_to(self._plugin, context, port, host):
                return False
            if status == constants.PORT_STATUS_ACTIVE:
                entity = provisioning_blocks.L2_AGENT_ENTITY
                provisioning_blocks.provisioning_complete(context, port, resources.PORT, entity)
            else:
                self._plugin.update_port_status(context, port, status, host)
        return True

    def notify_arrival(self, port: str) -> None:
        """Tell Nova that a port is plugged at the target of a live migration, where it is not bound yet."""
        context = self._context()
        row = ml2_db.get_port(context, port)
        notifier = getattr(self._plugin, "nova_notifier", None)
        is_compute = row is not None and row.device_owner.startswith(constants.DEVICE_OWNER_COMPUTE_PREFIX)
        if is_compute and notifier is not None and cfg.CONF.notify_nova_on_port_status_changes:
            notifier.notify_port_active_direct(row)

    def _context(self) -> Any:
        return neutron_context.get_admin_context()


@contextlib.contextmanager
def _database_errors() -> Iterator[None]:
    """Raise `DatabaseAway` for a lost connection: it is no refusal of one port or agent."""
    try:
        yield
    except DBConnectionError as error:
        raise DatabaseAway(str(error)) from error
