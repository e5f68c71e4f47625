"""Writes into Neutron, port by port."""

from __future__ import annotations

import pytest

from holdfast.inventory.api import DatabaseAway
from holdfast.openstack.observed import refusals, without


def test_a_port_that_neutron_refuses_does_not_fail_its_batch() -> None:
    written: list[bytes] = []

    def write(key: bytes) -> None:
        if key == b"bad":
            raise LookupError("no such port")
        written.append(key)

    refused = refusals([b"a", b"bad", b"z"], write)

    assert refused == {b"bad": "Neutron refused it: LookupError: no such port"}
    assert written == [b"a", b"z"]


def test_a_database_that_is_away_ends_the_batch() -> None:
    tried: list[bytes] = []

    def write(key: bytes) -> None:
        tried.append(key)
        raise DatabaseAway("connection lost")

    with pytest.raises(DatabaseAway):
        refusals([b"a", b"b"], write)

    assert tried == [b"a"]


def test_refused_keys_are_left_out_of_what_is_recorded() -> None:
    assert without({b"up": [b"a", b"bad"], b"down": [b"worse"]}, {b"bad", b"worse"}) == {b"up": [b"a"]}
