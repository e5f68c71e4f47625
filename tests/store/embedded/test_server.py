"""EmbeddedEtcd: its own folder, its own process, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.store.api import StoreError
from holdfast.store.embedded.binary import NoEtcd, Version, find, objection, read_version
from holdfast.store.embedded.server import EmbeddedEtcd, listening_pids
from holdfast.testing.real.processes import wait_until
from tests.store.harness import opened
from tests.store.servers import some_web_server


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def test_what_was_written_is_there_after_a_restart(folder: Path) -> None:
    async def main() -> None:
        async with EmbeddedEtcd(folder) as etcd, opened(etcd.connection()) as store:
            await store.put(b"key", b"value")
        async with EmbeddedEtcd(folder) as etcd, opened(etcd.connection()) as store:
            entry = await store.get(b"key")
            assert entry is not None
            assert entry.value == b"value"

    asyncio.run(main())


def test_it_listens_on_loopback_by_its_own_process_only(folder: Path) -> None:
    async def main() -> None:
        async with EmbeddedEtcd(folder) as etcd:
            assert etcd.endpoint.startswith("http://127.0.0.1:")
            assert listening_pids(int(etcd.endpoint.rpartition(":")[2])) == frozenset([etcd.pid])

    asyncio.run(main())


def test_it_is_gone_after_stop(folder: Path) -> None:
    async def main() -> int:
        async with EmbeddedEtcd(folder) as etcd:
            return etcd.pid

    assert not alive(asyncio.run(main()))


def test_a_port_that_is_taken_is_named_with_its_owner(folder: Path) -> None:
    async def main(port: int) -> None:
        with pytest.raises(StoreError, match=f"port {port} is taken by another server \\(pid {os.getpid()}\\)"):
            await EmbeddedEtcd(folder, port=port).start()

    with some_web_server() as url:
        asyncio.run(main(int(url.rpartition(":")[2])))


def test_an_etcd_that_does_not_start_says_why_and_where_its_log_is(folder: Path) -> None:
    async def main() -> None:
        with pytest.raises(StoreError, match=r"etcd did not start .*; its log is .*etcd\.log"):
            await EmbeddedEtcd(folder, options=["--no-such-flag"]).start()

    asyncio.run(main())


ORPHAN = """
import asyncio, sys
from pathlib import Path
from holdfast.store.embedded.server import EmbeddedEtcd

async def main():
    async with EmbeddedEtcd(Path(sys.argv[1])) as etcd:
        print(etcd.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


def test_it_dies_with_a_parent_that_is_killed(folder: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN, str(folder)], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.communicate()
    wait_until(lambda: not alive(pid), "etcd is gone")


@pytest.mark.parametrize("version", [(3, 4, 22), (3, 4, 23), (3, 5, 6), (3, 5, 30), (3, 6, 0)])
def test_a_good_version_is_used(version: Version) -> None:
    assert objection(version) is None


@pytest.mark.parametrize("version", [(2, 3, 8), (3, 3, 27), (3, 4, 21), (3, 5, 0), (3, 5, 5)])
def test_a_version_that_can_lose_data_is_refused(version: Version) -> None:
    refusal = objection(version)
    assert refusal is not None
    assert refusal.startswith(f"etcd {'.'.join(map(str, version))}")


def test_the_version_is_read_from_what_etcd_prints() -> None:
    assert read_version("etcd Version: 3.5.16\nGit SHA: x\n") == (3, 5, 16)
    assert read_version("nginx/1.22") is None


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    return path


def test_an_old_etcd_is_refused_with_its_path(tmp_path: Path) -> None:
    old = script(tmp_path / "etcd", "etcd Version: 3.5.1")
    with pytest.raises(NoEtcd, match=r"etcd: etcd 3\.5\.1 can lose data when it is killed; use 3\.5\.6 or newer"):
        find(old)


def test_something_else_called_etcd_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoEtcd, match="is not etcd"):
        find(script(tmp_path / "etcd", "hello"))


def test_a_missing_etcd_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoEtcd, match="install the package etcd-server"):
        find(places=())
    with pytest.raises(NoEtcd, match="does not exist"):
        find(tmp_path / "nowhere")


def test_an_etcd_where_packages_put_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked = script(tmp_path / "etcd-unpacked", "etcd Version: 3.4.23")
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert find(places=(tmp_path / "no", unpacked)) == unpacked
