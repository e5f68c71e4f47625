"""Roles of etcd's own authentication: who may read and write which keys. Pure.

A stolen host must not rewrite the fleet: agents and balancers read what is shared, and write only what they report
themselves. The region's objects, intents, the identity and the leader's key are written by servers only.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.model.base.keys import felix
from holdfast.model.base.region import Region
from holdfast.model.fleet.agent_report import AGENT_REPORT
from holdfast.model.fleet.balancer_report import BALANCER_REPORT

SERVER, READER = "holdfast-server", "holdfast-reader"
_CALICO, _RESOURCES = "/calico/", "/calico/resources/v3/projectcalico.org/"


class Grant(NamedTuple):
    """One permission of a role: on a key, or on all that begin with it."""

    role: str
    access: str
    key: str
    is_prefix: bool = True


def server_grants(region: Region) -> list[Grant]:
    """Return the role of servers, and the one of everybody who only looks."""
    own = _own(region)
    return [
        Grant(SERVER, "readwrite", own),
        Grant(SERVER, "readwrite", _CALICO),
        Grant(READER, "read", own),
        Grant(READER, "read", _RESOURCES),
    ]


def agent_grants(region: Region, host: str) -> list[Grant]:
    """Return the role of one host: it reads what is shared, and writes only its own reports."""
    role = agent_role(host)
    report = AGENT_REPORT.key(region, host).decode()
    return [
        Grant(role, "read", _own(region)),
        Grant(role, "read", _RESOURCES),
        Grant(role, "readwrite", report, is_prefix=False),
        Grant(role, "readwrite", felix(region) + report.rpartition("/")[2] + "/"),
    ]


def balancer_grants(region: Region, name: str) -> list[Grant]:
    """Return the role of one balancer: it reads what is shared, and writes only its own report."""
    role = balancer_role(name)
    return [
        Grant(role, "read", _own(region)),
        Grant(role, "read", _RESOURCES),
        Grant(role, "readwrite", BALANCER_REPORT.key(region, name).decode(), is_prefix=False),
    ]


def agent_role(host: str) -> str:
    return f"holdfast-agent-{host}"


def balancer_role(name: str) -> str:
    return f"holdfast-balancer-{name}"


def etcdctl_commands(grants: list[Grant], passwords: str | None = None) -> Iterator[str]:
    """Yield the commands that create these roles, each with a user of the same name.

    With a folder of passwords, each user has the one in the file of its name there; without, etcdctl asks for it.
    """
    for role in dict.fromkeys(grant.role for grant in grants):
        yield f"etcdctl role add {role}"
        for grant in grants:
            if grant.role == role:
                prefix = " --prefix=true" if grant.is_prefix else ""
                yield f"etcdctl role grant-permission{prefix} {role} {grant.access} {grant.key}"
        if passwords is None:
            yield f"etcdctl user add {role}"
        else:
            yield f"etcdctl user add --interactive=false {role} <{shlex.quote(f'{passwords}/{role}')}"
        yield f"etcdctl user grant-role {role} {role}"


def _own(region: Region) -> str:
    return f"/holdfast/v1/{region.segment}/"
