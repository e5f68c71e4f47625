"""The leader of a region. The term is not in the value: it is the create-revision of the key.

In OpenStack mode the key is that of networking-calico, so that there are never two leaders during an upgrade from it;
its old value, `host:pid`, can be read.
"""

from __future__ import annotations

import re
from datetime import datetime

import msgspec
from msgspec.structs import force_setattr

from holdfast.model.base.codec import Natural
from holdfast.model.base.keys import own, single
from holdfast.model.base.kind import Column, Kind
from holdfast.model.base.region import Region
from holdfast.model.base.time import Moment, rfc3339, utc

_HOST_AND_PID = re.compile(rb"([!-9;-~]{1,253}):([0-9]{1,10})").fullmatch


class Leader(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A leading process. Boot id and PID namespace tell whether `pid` can be checked from this process (C12)."""

    name: str
    host: str
    pid: Natural
    boot_id: str = ""
    pid_namespace: str = ""
    since: Moment | None = None

    def __post_init__(self) -> None:
        if self.since is not None:
            force_setattr(self, "since", utc(self.since))


def _since(moment: datetime | None) -> str:
    return "" if moment is None else rfc3339(moment)


def _host_and_pid(value: bytes) -> Leader | None:
    found = _HOST_AND_PID(value)
    return found and Leader(found[1].decode(), found[1].decode(), int(found[2]))


_own = own("leader")


def _neutron(region: Region) -> str:
    return f"/calico/openstack/v2/{region.segment}/neutron_election"


_COLUMNS: tuple[Column[Leader, str], ...] = (
    Column("LEADER", lambda _, leader: leader.name),
    Column("HOST", lambda _, leader: leader.host),
    Column("PID", lambda _, leader: str(leader.pid)),
    Column("SINCE", lambda _, leader: _since(leader.since)),
    Column("BOOT", lambda _, leader: leader.boot_id, wide=True),
)


def _place(region: Region) -> str:
    return _neutron(region) if region.openstack else _own(region)


LEADER: Kind[Leader, str] = Kind(
    name="leader",
    plural="leaders",
    struct=Leader,
    place=single(_place, "leader"),
    columns=_COLUMNS,
    legacy=_host_and_pid,
)
"""The leader of the region, at the key at which it is elected."""

NEUTRON_LEADER: Kind[Leader, str] = Kind(
    name="neutron-leader",
    plural="neutron-leaders",
    struct=Leader,
    place=single(_neutron, "neutron-leader"),
    columns=_COLUMNS,
    legacy=_host_and_pid,
)
