"""The fault proxy does to a connection what it says, and nothing to anybody who is not meant."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.testing.real.processes import reserved_ports, wait_until
from holdfast.testing.real.proxy import FaultProxy

SILENCE = 0.3


class Upper(socketserver.BaseRequestHandler):
    """Answers every chunk in capitals, and remembers what it heard."""

    heard: bytes = b""

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := self.request.recv(1 << 16):
                type(self).heard += data
                self.request.sendall(data.upper())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@pytest.fixture
def upper() -> Iterator[tuple[int, type[Upper]]]:
    """A server on loopback: its port, and its handler with what it heard."""
    handler = type("Handler", (Upper,), {"heard": b""})
    with Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1], handler
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(upper: tuple[int, type[Upper]], proxy_to: Callable[[int], FaultProxy]) -> FaultProxy:
    return proxy_to(upper[0])


@contextlib.contextmanager
def connected(proxy: FaultProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client:
        yield client


def ask(client: socket.socket, text: bytes) -> bytes:
    client.sendall(text)
    return client.recv(1 << 16)


def silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE)
    try:
        return client.recv(1) is None
    except TimeoutError:
        return True
    finally:
        client.settimeout(20)


def test_without_faults_everything_passes_both_ways(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        assert ask(client, b"hello") == b"HELLO"
        assert proxy.connections == 1


def test_an_end_passes_too(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        ask(client, b"hello")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_delay_is_paid_in_each_direction(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        ask(client, b"warm")
        proxy.delay(0.2)
        begun = time.monotonic()
        assert ask(client, b"slow") == b"SLOW"
        assert time.monotonic() - begun >= 0.4


def test_half_open_towards_the_client_lets_the_server_hear_and_the_client_nothing(
    proxy: FaultProxy, upper: tuple[int, type[Upper]]
) -> None:
    with connected(proxy) as client:
        ask(client, b"a")
        proxy.half_open(towards="client")
        client.sendall(b"b")
        wait_until(lambda: upper[1].heard == b"ab", "the server hears")
        assert silent(client)


def test_half_open_towards_the_server_lets_nothing_through_to_it(
    proxy: FaultProxy, upper: tuple[int, type[Upper]]
) -> None:
    with connected(proxy) as client:
        ask(client, b"a")
        proxy.half_open(towards="server")
        client.sendall(b"b")
        assert silent(client)
        assert upper[1].heard == b"a"


def test_a_half_open_connection_is_silent_while_new_ones_are_well(proxy: FaultProxy) -> None:
    with connected(proxy) as stuck, connected(proxy) as other:
        ask(stuck, b"a")
        ask(other, b"a")
        proxy.half_open(towards="client")
        stuck.sendall(b"b")
        with connected(proxy) as fresh:
            assert ask(fresh, b"fresh") == b"FRESH"
        assert silent(stuck)


def test_a_black_hole_swallows_old_and_new_connections_without_an_error(proxy: FaultProxy) -> None:
    with connected(proxy) as old:
        ask(old, b"a")
        proxy.black_hole()
        old.sendall(b"b")
        with connected(proxy) as fresh:
            fresh.sendall(b"c")
            assert silent(fresh)
        assert silent(old)


def test_what_was_held_back_flows_on_after_healing(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        ask(client, b"a")
        proxy.black_hole()
        client.sendall(b"held")
        assert silent(client)
        proxy.heal()
        assert client.recv(100) == b"HELD"


def test_a_reset_is_an_error_at_the_client(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        ask(client, b"a")
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connected(proxy) as again:
        assert ask(again, b"again") == b"AGAIN"


def test_a_silent_connection_can_be_reset_too(proxy: FaultProxy) -> None:
    with connected(proxy) as client:
        ask(client, b"a")
        proxy.black_hole()
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_refused_connection_is_possible_again_on_the_same_port_after_healing(proxy: FaultProxy) -> None:
    port = proxy.port
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError), connected(proxy):
        pass
    proxy.heal()
    assert proxy.port == port
    with connected(proxy) as client:
        assert ask(client, b"back") == b"BACK"


def test_a_target_that_is_not_there_ends_the_connection(proxy_to: Callable[[int], FaultProxy]) -> None:
    with (
        reserved_ports(1) as (nobody,),
        connected(proxy_to(nobody)) as client,
        contextlib.suppress(ConnectionResetError),
    ):
        assert client.recv(1) == b""
