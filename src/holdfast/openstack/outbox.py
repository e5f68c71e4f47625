"""Records changes of Neutron's objects in the outbox, in the transaction that makes them (C19).

A row has a kind and an id, never a payload: the syncer reads the present state when it writes. Only these functions
insert rows; the driver calls them in precommit hooks, PRECOMMIT events and while rows are flushed, never after the
commit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, and_, insert, select

from holdfast.openstack.tables import FLOATING_IPS, OUTBOX, RULES


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


def record_groups_with_rules_for(session: Any, address_group: str) -> None:
    """Record the security groups that have a rule for an address group."""
    _record_groups(session, RULES.c.remote_address_group_id == address_group)


def record_groups_that_admit(session: Any, group: str) -> None:
    """Record the other security groups that have a rule for the members of this one. When it is deleted, so are these
    rules: by the database, without an event."""
    _record_groups(session, and_(RULES.c.remote_group_id == group, RULES.c.security_group_id != group))


def _record_groups(session: Any, having: ColumnElement[bool]) -> None:
    """Record the security groups that have such a rule."""
    query = select(RULES.c.security_group_id).where(having).distinct().order_by(RULES.c.security_group_id)
    for group in session.execute(query).scalars().all():
        record(session, Changed.RULES, group)
