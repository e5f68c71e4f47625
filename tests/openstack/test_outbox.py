"""Rows of the outbox for changes that Neutron tells about only by the object that caused them."""

from __future__ import annotations

from sqlalchemy import select

from holdfast.openstack import tables as t
from holdfast.openstack.outbox import Changed, record_groups_that_admit, record_groups_with_rules_for
from holdfast.testing.fakes.neutron import NeutronDatabase


def _recorded(database: NeutronDatabase) -> list[tuple[str, str]]:
    with database.engine.connect() as connection:
        rows = connection.execute(select(t.OUTBOX.c.kind, t.OUTBOX.c.resource).order_by(t.OUTBOX.c.id))
        return [(row.kind, row.resource) for row in rows]


def _rule(database: NeutronDatabase, number: int, group: str, **remote: str) -> None:
    row = {"id": f"r{number}", "security_group_id": group, "direction": "ingress", "ethertype": "IPv4"}
    database.insert(t.RULES, **row, **remote)


def test_groups_with_rules_for_a_deleted_group_have_changed_once_each(database: NeutronDatabase) -> None:
    web, admitting, deleted = (database.group(id=each) for each in ("a-web", "b-admitting", "c-deleted"))
    _rule(database, 1, admitting, remote_group_id=deleted)
    _rule(database, 2, admitting, remote_group_id=deleted)
    _rule(database, 3, deleted, remote_group_id=deleted)
    _rule(database, 4, web, remote_group_id=admitting)

    with database.engine.begin() as connection:
        record_groups_that_admit(connection, deleted)

    assert _recorded(database) == [(Changed.RULES, admitting)]


def test_groups_with_rules_for_a_changed_address_group_have_changed_once_each(database: NeutronDatabase) -> None:
    one, other, third = (database.group(id=each) for each in ("a-one", "b-other", "c-third"))
    _rule(database, 1, one, remote_address_group_id="offices")
    _rule(database, 2, one, remote_address_group_id="offices")
    _rule(database, 3, other, remote_address_group_id="offices")
    _rule(database, 4, third, remote_address_group_id="partners")

    with database.engine.begin() as connection:
        record_groups_with_rules_for(connection, "offices")

    assert _recorded(database) == [(Changed.RULES, one), (Changed.RULES, other)]
