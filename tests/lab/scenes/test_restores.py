"""Scenes of restores: no route suffers when etcd or the database goes back, nothing of Calico's is touched."""

from __future__ import annotations

import re
from pathlib import Path

from tests.lab.harness import broken, needs_etcd

UNTOUCHED = re.compile(r"0 of \d+ programmed objects were ever missing or different in [\d,]+ samples")


@needs_etcd
def test_a_restored_etcd_costs_no_route(lab: Path) -> None:
    result = broken(lab, "etcd-restored")
    assert result.exit_code == 0, result.output
    assert re.search(r"4 of 4 objects are in the store again \d+\.\d\d s later", result.output)
    assert "verdict: the store went back" in result.output
    assert UNTOUCHED.search(result.output)


@needs_etcd
def test_a_restored_database_deletes_nothing(lab: Path) -> None:
    result = broken(lab, "database-restored")
    assert result.exit_code == 0, result.output
    assert "the inventory was restored from a backup, or lost commits" in result.output
    assert UNTOUCHED.search(result.output)


@needs_etcd
def test_a_first_start_beside_calico_changes_nothing(lab: Path) -> None:
    result = broken(lab, "foreign-store")
    assert result.exit_code == 0, result.output
    assert "30 of 30 objects are as before after 8 s" in result.output
    assert "30 of 30 objects are as before; those of the inventory are beside them" in result.output
