"""A site of its own for every test: a region that no other test uses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.change import importing
from holdfast.testing.fakes.inventory import fresh_engine
from holdfast.testing.real.etcd import EtcdCluster
from tests.cli.change.store_site import StoreSite


@pytest.fixture
def site(one_etcd: EtcdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreSite]:
    monkeypatch.setattr(importing, "WATCHED_S", 0.0)
    with fresh_engine(f"sqlite:///{tmp_path}/inventory.db") as engine:
        yield StoreSite(one_etcd, engine, tmp_path, f"import{uuid.uuid4().hex[:8]}")
