"""Benchmarks of the store start an etcd of their own, where there is one to start."""

from __future__ import annotations

import pytest

from holdfast.store.embedded import binary


@pytest.fixture
def etcd_installed() -> None:
    try:
        binary.find()
    except binary.NoEtcd as why:
        pytest.skip(str(why))
