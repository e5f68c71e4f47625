"""Records changes of Neutron's objects in the outbox, in the transaction that makes them (C19).

A row has a kind and an id, never a payload: the syncer reads the present state when it writes. Only these functions
insert rows; the driver calls them in precommit hooks and PRECOMMIT events, never after the commit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import insert, select

from holdfast.openstack.tables import FLOATING_IPS, OUTBOX


class Changed(StrEnum):
    """Kinds of changed objects."""

    PORT = "port"
    NETWORK = "network"
    SUBNET = "subnet"
    GROUP = "group"
    RULES = "rules"
    """Rules of a group: its policy changes, and none of its ports."""
    QOS = "qos"


def record(session: Any, kind: Changed, resource: str | None) -> int | None:  # protection: C19
    """Record that an object changed, and return the revision of that. Does nothing for a missing id."""
    if not resource:
        return None
    row = session.execute(insert(OUTBOX).values(kind=kind.value, resource=resource))
    return int(row.inserted_primary_key[0])


def record_port_of(session: Any, floating_port: str) -> None:
    """Record the port whose floating address has this port of its own."""
    columns = FLOATING_IPS.c
    query = select(columns.fixed_port_id).where(columns.floating_port_id == floating_port)
    for port in session.execute(query).scalars().all():
        record(session, Changed.PORT, port)
