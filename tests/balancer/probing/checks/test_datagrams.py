"""udp and dns: what is sent, and what an answer means; then over real sockets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast.balancer.probing.checks import UncheckableTarget, find
from holdfast.balancer.probing.checks.dns import DnsConversation, question
from holdfast.balancer.probing.files import PROBE_FILES
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec
from holdfast.config.sections.healthcheck import HealthCheck
from tests.balancer.probing.harness import PATIENT, probe

HERE = "127.0.0.1"


def answer(request: bytes, *, error: int = 0, records: int = 1, number: int | None = None) -> bytes:
    """The head of an answer to a question, with the question and no more: the records themselves are not read."""
    asked = struct.unpack_from(">H", request)[0] if number is None else number
    return struct.pack(">HHHHHH", asked, 0x8180 | error, 1, records, 0, 0) + request[12:]


@pytest.mark.parametrize(
    ("name", "encoded"), [("a.example.", b"\1a\7example\0\0\1\0\1"), ("", b"\0\0\1\0\1"), (".", b"\0\0\1\0\1")]
)
def test_a_question_is_encoded_as_dns_has_it(name: str, encoded: bytes) -> None:
    assert question(name, "A") == encoded


@pytest.mark.parametrize("name", ["a..b", "x" * 64, ".".join(["x" * 60] * 5), "ö.example"])
def test_a_name_that_dns_cannot_have_is_refused(name: str) -> None:
    target = TargetSpec("ns1", HERE, 53, HealthCheck(type="dns", query=name))
    with pytest.raises(UncheckableTarget, match="ns1: query"):
        find(target).prepare(target, PROBE_FILES)


@pytest.mark.parametrize(
    ("error", "records", "code"),
    [(0, 1, ProbeCode.L7OK), (3, 0, ProbeCode.L7STS), (2, 0, ProbeCode.L7STS), (0, 0, ProbeCode.L7RSP)],
)
def test_the_error_and_the_number_of_records_decide(error: int, records: int, code: ProbeCode) -> None:
    conversation = DnsConversation(question("www.example.net", "A"))
    verdict = conversation.feed(answer(conversation.start(), error=error, records=records))
    assert not isinstance(verdict, bytes)
    assert verdict.code is code


@pytest.mark.parametrize("wrong", [b"", b"short", "number", "question", "no response"])
def test_what_is_no_answer_to_this_question_is_ignored(wrong: str | bytes) -> None:
    conversation = DnsConversation(question("www.example.net", "A"))
    good = answer(conversation.start())
    other = question("mail.example.net", "A")
    said = {
        "number": b"\xff\xff" + good[2:],
        "question": good[:12] + other,
        "no response": good[:2] + b"\1\0" + good[4:],
    }
    assert conversation.feed(wrong if isinstance(wrong, bytes) else said[wrong]) == b""


@contextmanager
def server(reply: Callable[[bytes], bytes | None]) -> Iterator[int]:
    """A UDP server on a free port of the loopback device, for as long as the block."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((HERE, 0))
        ended = threading.Event()
        sock.settimeout(0.05)

        def serve() -> None:
            while not ended.is_set():
                try:
                    data, sender = sock.recvfrom(2_048)
                except TimeoutError:
                    continue
                if (said := reply(data)) is not None:
                    sock.sendto(said, sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield sock.getsockname()[1]
        finally:
            ended.set()
            thread.join()


def test_a_datagram_that_is_answered_passes() -> None:
    with server(lambda data: data + b" pong") as port:
        assert probe(HERE, port, type="udp", send="ping").code is ProbeCode.L7OK
        assert probe(HERE, port, type="udp", send="ping", body="pong$").code is ProbeCode.L7OK
        assert probe(HERE, port, type="udp", send="ping", body="^pong").code is ProbeCode.L7RSP


def test_a_port_that_nobody_has_is_refused_by_the_kernel() -> None:
    with server(lambda _data: None) as port:
        pass
    assert probe(HERE, port, type="udp", send="ping").code is ProbeCode.L4CON


def test_silence_times_out() -> None:
    with server(lambda _data: None) as port:
        result = probe(HERE, port, type="udp", send="ping", timeout=PATIENT / 100)
    assert (result.code, result.failed) == (ProbeCode.L7TOUT, True)


def test_a_dns_server_is_asked_over_udp() -> None:
    with server(answer) as port:
        assert probe(HERE, port, type="dns", query="www.example.net").code is ProbeCode.L7OK


def test_a_udp_check_needs_something_to_send() -> None:
    target = TargetSpec("web1", HERE, 53, HealthCheck(type="udp"))
    with pytest.raises(UncheckableTarget, match="web1: a udp check needs `send`"):
        find(target).prepare(target, PROBE_FILES)
    assert [conflict.fields for conflict in HealthCheck(type="udp").conflicts()] == [("send",)]
