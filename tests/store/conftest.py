"""An etcd of our own for the tests of the store: one for all tests that only need a prefix, or one per test."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.embedded.server import EmbeddedEtcd
from holdfast.testing.fixtures import or_skip
from holdfast.testing.real.etcd import EtcdCluster, etcd_cluster


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEtcd]:
    """One running etcd, shared: a test uses keys under its own prefix and leaves the server as it is."""
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (package etcd-server)")
    server = EmbeddedEtcd(tmp_path_factory.mktemp("etcd"))
    with asyncio.Runner() as runner:
        runner.run(server.start())
        yield server
        runner.run(server.stop())


@pytest.fixture(scope="module")
def cleared_etcd() -> Iterator[EtcdCluster]:
    """An etcd for tests that clear it and count its revisions: nobody who is late to end may write there."""
    with or_skip(etcd_cluster(1)) as cluster:
        yield cluster


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder of a test that starts its own etcd."""
    if shutil.which("etcd") is None:
        pytest.skip("etcd is not installed (package etcd-server)")
    return tmp_path / "etcd"


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> bytes:
    """A prefix of the shared etcd that no other test uses."""
    return f"/{request.node.nodeid}/".encode()
