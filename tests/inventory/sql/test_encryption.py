"""PostgreSQL on another machine: it proves its name over TLS before it learns who we are."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.config.sections.inventory import InventorySettings, stays_here
from holdfast.inventory.sql.engine import database_url, open_engine
from tests.store.certificates import SERVER, Authority, Pair

HOST = "db.example"
SSL_REQUEST = bytes.fromhex("0000000804d2162f")


class DatabaseImpostor:
    """Answers as PostgreSQL does up to the first message of the client's, which it keeps; with `pair` it has TLS."""

    def __init__(self, pair: Pair | None) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.heard = b""
        self._context = None
        if pair is not None:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(pair.cert, pair.key)

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer = self._listening.accept()[0]
                peer.settimeout(20)
                with contextlib.suppress(OSError), peer:
                    self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        first = peer.recv(8)
        if first != SSL_REQUEST:
            self.heard += first + peer.recv(1_000)
        elif self._context is None:
            peer.sendall(b"N")
            self.heard += peer.recv(1_000)
        else:
            peer.sendall(b"S")
            with self._context.wrap_socket(peer, server_side=True) as inside:
                self.heard += inside.recv(1_000)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@contextlib.contextmanager
def impostor(pair: Pair | None) -> Iterator[DatabaseImpostor]:
    one = DatabaseImpostor(pair)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield one
    finally:
        one.close()
        thread.join(30)


def told_to(one: DatabaseImpostor, ca: Path | None) -> tuple[bytes, str]:
    """Connect as the daemons do. Returns what the other side has heard inside, and the error."""
    address = f"postgresql://holdfast@{HOST}:{one.port}/inventory?hostaddr=127.0.0.1&gssencmode=disable"
    engine = open_engine(database_url(address, "hunter2", str(ca) if ca else None))
    try:
        with pytest.raises(Exception) as caught, engine.connect():  # noqa: PT011 -- nothing answers as a database
            pass
    finally:
        engine.dispose()
    return one.heard, str(caught.value)


def test_a_database_that_proves_its_name_is_told_who_we_are(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with impostor(authority.issue("db", [SERVER], host=HOST)) as one:
        heard, _ = told_to(one, authority.pem)
    assert b"holdfast" in heard


def test_a_database_without_tls_is_told_nothing(tmp_path: Path) -> None:
    with impostor(None) as one:
        heard, error = told_to(one, Authority(tmp_path).pem)
    assert (heard, "does not support SSL" in error) == (b"", True)


def test_an_impostor_with_a_certificate_of_another_authority_is_told_nothing(tmp_path: Path) -> None:
    with impostor(Authority(tmp_path, "other").issue("db", [SERVER], host=HOST)) as one:
        heard, error = told_to(one, Authority(tmp_path).pem)
    assert (heard, "certificate verify failed" in error) == (b"", True)


def test_an_impostor_with_the_certificate_of_another_host_is_told_nothing(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with impostor(authority.issue("web", [SERVER], host="web.example")) as one:
        heard, error = told_to(one, authority.pem)
    assert (heard, HOST in error) == (b"", True)


def test_without_a_file_those_are_trusted_that_the_machine_trusts(tmp_path: Path) -> None:
    with impostor(Authority(tmp_path).issue("db", [SERVER], host=HOST)) as one:
        heard, error = told_to(one, None)
    assert (heard, "certificate verify failed" in error) == (b"", True)


@pytest.mark.parametrize(
    ("database", "stays"),
    [
        ("postgresql://u@localhost/d", True),
        ("postgresql://u@127.0.0.2:5432/d", True),
        ("postgresql://u@[::1]:5432/d", True),
        ("postgresql://u@/d?host=/run/postgresql", True),
        ("postgresql://u@%2Frun%2Fpostgresql/d", True),
        ("postgresql:///d", False),  # PGHOST may name any host
        ("postgresql://u@db.example/d", False),
        ("postgresql://u@localhost,db.example/d", False),
        ("postgresql://u@localhost/d?hostaddr=192.0.2.1", False),
        ("postgresql://u@localhost.evil.example/d", False),
    ],
)
def test_only_what_cannot_leave_the_machine_may_go_unencrypted(database: str, *, stays: bool) -> None:
    assert stays_here(database) is stays
    assert ("sslmode" in database_url(database).query) is not stays


@pytest.mark.parametrize("mode", ["disable", "allow", "prefer", "require", "verify-ca", ""])
def test_a_weaker_mode_in_the_url_is_refused(mode: str) -> None:
    (conflict,) = InventorySettings(database=f"postgresql://u@db.example/d?sslmode={mode}").conflicts()
    assert "trust whoever answers" in conflict.sentence


@pytest.mark.parametrize(
    "database",
    [
        "postgresql://u:hunter2@db.example/d",
        "postgresql://u@db.example/d?password=hunter2",
        "postgresql://u@/?sslpassword=hunter2",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_repeated(database: str) -> None:
    (conflict,) = InventorySettings(database=database).conflicts()
    assert "password_file" in conflict.sentence
    assert "hunter2" not in conflict.sentence


@pytest.mark.parametrize(
    "database",
    [
        "postgresql://u@db.example/d",
        "postgresql://u@db.example/d?sslmode=verify-full",
        "postgresql://u@localhost/d?sslmode=disable",
    ],
)
def test_a_database_that_is_verified_or_here_is_accepted(database: str) -> None:
    assert list(InventorySettings(database=database).conflicts()) == []
