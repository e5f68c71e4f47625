"""Replacements for protections of the OpenStack driver that a fault test removes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.inventory.api import ObservedRow
from holdfast.openstack.observed import NeutronObserved


def as_recorded(_self: NeutronObserved, _connection: object, rows: Sequence[ObservedRow]) -> list[ObservedRow]:
    """Rows as they were written last, whatever Neutron did to the port since."""
    return list(rows)
