"""Backends of all kinds: nginx, openssl, and sockets that misbehave."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import trustme

from holdfast.testing.real.processes import Process, reserved_ports, tool, wait_until

HERE = "127.0.0.1"

NGINX = """
daemon off; master_process off; worker_processes 1; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log {home}/access.log; client_body_temp_path {home}/1; proxy_temp_path {home}/2;
  fastcgi_temp_path {home}/3; uwsgi_temp_path {home}/4; scgi_temp_path {home}/5;
  ssl_certificate {home}/server.pem; ssl_certificate_key {home}/server.key;
  server {{ listen 127.0.0.1:{ports[0]}; listen [::1]:{ports[0]}; listen 127.0.0.1:{ports[1]} ssl;
    server_name www.example.org; add_header X-Backend web-1;
    location = /health {{ return 200 "all is well\\n"; }}
    location = /moved {{ return 302 /login; }}
    location = /broken {{ return 503; }}
    location = /for-probes {{ if ($http_x_probe != "holdfast") {{ return 403; }} return 200; }}
    location = /with-token {{ if ($http_authorization = "Bearer s3same") {{ return 200; }}
                              if ($http_authorization = "Bearer renewed") {{ return 202; }} return 401; }}
    location = /head-only {{ limit_except HEAD {{ deny all; }} empty_gif; }}
    location / {{ return 404; }} }}
  server {{ listen 127.0.0.1:{ports[2]} ssl; server_name www.example.org;
    ssl_client_certificate {home}/ca.pem; ssl_verify_client on; add_header X-Backend $ssl_client_serial;
    location = /health {{ return 200; }} }}
}}
"""


class Authority:
    """Signs certificates that are good, or wrong in one way."""

    def __init__(self, home: Path) -> None:
        self._ca = trustme.CA()
        self._home = home
        self.file = home / "ca.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def certificate(
        self, name: str, *, expired: bool = False, by_stranger: bool = False, file: str = "server"
    ) -> tuple[Path, Path]:
        signer = trustme.CA() if by_stranger else self._ca
        until = datetime.now(UTC) - timedelta(days=1) if expired else None
        made = signer.issue_cert(name, not_after=until)
        chain, key = self._home / f"{file}.pem", self._home / f"{file}.key"
        made.private_key_pem.write_to_path(str(key))
        chain.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        return chain, key

    def client_certificate(self, stem: Path, *, by_stranger: bool = False) -> tuple[Path, Path]:
        """A certificate and the key of its own, which only its owner can read."""
        made = (trustme.CA() if by_stranger else self._ca).issue_cert("balancer@example.org")
        chain, key = stem.with_suffix(".pem"), stem.with_suffix(".key")
        chain.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        key.touch(mode=0o600)
        key.write_bytes(made.private_key_pem.bytes())
        return chain, key


@contextmanager
def nginx(home: Path, authority: Authority) -> Iterator[tuple[int, int, int]]:
    """An nginx; its ports for http, https, and https with client certificates. Its own is for www.example.org."""
    authority.certificate("www.example.org")
    command = [tool("nginx"), "-c", str(home / "nginx.conf"), "-e", str(home / "error.log")]
    process = Process(command, log=home / "log")
    with reserved_ports(3) as ports:
        (home / "nginx.conf").write_text(NGINX.format(home=home, ports=ports))
        process.start()
        try:
            for place in ((HERE, ports[0]), ("::1", ports[0]), (HERE, ports[1]), (HERE, ports[2])):
                wait_until(partial(listens, *place), f"nginx listens: {process.output}")
            yield ports[0], ports[1], ports[2]
        finally:
            process.stop()


@contextmanager
def s_server(home: Path, chain: Path, key: Path, *options: str) -> Iterator[int]:
    """OpenSSL's own server; it answers any path with a page."""
    with reserved_ports(1) as (port,):
        words = ["s_server", "-accept", f"127.0.0.1:{port}", "-cert", str(chain), "-key", str(key), "-www", *options]
        process = Process([tool("openssl"), *words], log=home / "s_server.log")
        process.start()
        try:
            wait_until(partial(listens, HERE, port), f"openssl s_server listens: {process.output}")
            yield port
        finally:
            process.stop()


def listens(address: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=5):
        return True
    return False


Manners = Callable[[socket.socket], None]


@contextmanager
def server(manners: Manners) -> Iterator[int]:
    """A server with those manners, each connection in a thread of its own; its port."""
    over = threading.Event()
    with socket.create_server((HERE, 0), backlog=512) as listening:
        listening.settimeout(0.05)
        accepting = threading.Thread(target=_accept, args=(listening, manners, over))
        accepting.start()
        try:
            yield listening.getsockname()[1]
        finally:
            over.set()
            accepting.join()


def _accept(listening: socket.socket, manners: Manners, over: threading.Event) -> None:
    talks: list[tuple[threading.Thread, socket.socket]] = []
    while not over.is_set():
        with contextlib.suppress(TimeoutError):
            peer, _ = listening.accept()
            peer.settimeout(30)
            talk = threading.Thread(target=_behave, args=(peer, manners))
            talk.start()
            talks.append((talk, peer))
    for _talk, peer in talks:
        with contextlib.suppress(OSError):
            peer.shutdown(socket.SHUT_RDWR)
    for talk, _peer in talks:
        talk.join()


def _behave(peer: socket.socket, manners: Manners) -> None:
    with contextlib.suppress(OSError, ssl.SSLError), peer:
        manners(peer)


def mute(peer: socket.socket) -> None:
    """Reads everything, says nothing."""
    while peer.recv(65_536):
        pass


def slow(peer: socket.socket, delay: float = 0.03) -> None:
    """Takes a while to say that it is well."""
    peer.recv(65_536)
    time.sleep(delay)
    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def flood(peer: socket.socket) -> None:
    """Sends without end, as a header that never stops."""
    peer.sendall(b"HTTP/1.1 200 OK\r\nX-Flood: ")
    while True:
        peer.sendall(b"x" * 65_536)


def body_flood(peer: socket.socket) -> None:
    """Sends a body without end."""
    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        peer.sendall(b"x" * 65_536)


def trickle(peer: socket.socket) -> None:
    """Sends one byte at a time, for ever."""
    peer.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        peer.sendall(b"x")
        time.sleep(0.01)


def saying(words: bytes) -> Manners:
    """Says this to whoever asks, and closes."""

    def manners(peer: socket.socket) -> None:
        peer.recv(65_536)
        peer.sendall(words)

    return manners


@contextmanager
def black_hole() -> Iterator[int]:
    """A port whose queue is full: the kernel drops every further attempt to connect."""
    with contextlib.ExitStack() as held:
        listening = held.enter_context(socket.create_server((HERE, 0), backlog=0))
        port = listening.getsockname()[1]
        for _ in range(8):
            filler = held.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((HERE, port))
        yield port
