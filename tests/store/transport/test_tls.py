"""Certificates that are rotated under a running process."""

from __future__ import annotations

import asyncio
import datetime
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from holdfast.model.base.time import Instant
from holdfast.store.api import StoreRefused
from holdfast.store.transport.gateway import Connection
from holdfast.store.transport.tls import CHECK_EVERY, TlsContext, TlsFiles
from holdfast.testing.fault import fault
from tests.store.certificates import CLIENT, SERVER, Authority, Pair
from tests.store.harness import Follower, opened, until
from tests.store.servers import tls_etcd

BOTH = (SERVER, CLIENT)
BRIEFLY = datetime.timedelta(seconds=2)
KEPT, CHANGED = (
    "cannot load the changed TLS files; using the previous ones",
    "TLS files changed; new connections use them",
)


@fault(
    "C54",
    without="holdfast.store.transport.tls:TlsFiles.version",
    returns=[],
    sees=(StoreRefused, "refuses our client certificate|certificate is not signed"),
)
@pytest.mark.parametrize("why", ["the certificate expired", "the CA was replaced"])
def test_C54_a_process_goes_on_after_certificates_were_rotated(tmp_path: Path, why: str) -> None:
    authority = Authority(tmp_path)
    server, old = authority.issue("server", BOTH), authority.issue("client", [CLIENT], valid_for=BRIEFLY)
    over = time.monotonic() + BRIEFLY.total_seconds()

    async def main() -> None:
        async with opened(Connection((etcd.url,), ca=authority.pem, cert=old.cert, key=old.key)) as store:
            await store.put(b"/p/before", b"")
            async with Follower(store, b"/p/") as follower:
                new = Authority(tmp_path) if why == "the CA was replaced" else authority
                new.issue("server", BOTH)
                new.issue("client", [CLIENT])
                await until(lambda: time.monotonic() > over)
                await asyncio.to_thread(etcd.restart)  # ends all connections
                await store.put(b"/p/after", b"")
                await until(lambda: b"/p/after" in follower.seen, within=5)
                assert len(follower.snapshots) == 1

    with tls_etcd(tmp_path, authority, server) as etcd:
        asyncio.run(main())


def test_C54_files_that_do_not_fit_together_leave_the_previous_ones_in_use(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = _files(authority, authority.issue("client", [CLIENT]))
    context = TlsContext(files)
    before = context.current()
    assert files.cert is not None
    assert files.key is not None
    whole, old_key = files.cert.read_bytes(), files.key.read_bytes()
    with capture_logs() as logs:
        files.cert.write_bytes(whole[: len(whole) // 2])
        assert context.current() is context.current() is before
        assert [(one["event"], one["log_level"]) for one in logs] == [(KEPT, "error")], "said once"
        assert f"store.cert_file {files.cert} and store.key_file {files.key} are not a usable pair" in logs[0]["why"]
        authority.issue("client", [CLIENT])
        new_key = files.key.read_bytes()
        files.key.write_bytes(old_key)
        assert context.current() is before, "the certificate is new, its key has not been written yet"
        files.key.write_bytes(new_key)
        assert context.current() is not before
        assert logs[-1]["event"] == CHANGED


def test_C54_a_missing_file_leaves_the_previous_ones_in_use(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = TlsContext(_files(authority, authority.issue("client", [CLIENT])))
    before = context.current()
    authority.pem.unlink()
    assert context.current() is before


def test_C54_a_process_that_needs_no_connection_notices_changed_files_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = TlsContext(_files(authority, authority.issue("client", [CLIENT])))
    now = Instant(10**12)
    context.check(now)
    authority.pem.write_text("rubbish")
    with capture_logs() as logs:
        context.check(now + CHECK_EVERY / 2)
        assert not logs
        context.check(now + CHECK_EVERY)
    assert [one["event"] for one in logs] == [KEPT]


def _files(authority: Authority, pair: Pair) -> TlsFiles:
    return TlsFiles(authority.pem, pair.cert, pair.key)
