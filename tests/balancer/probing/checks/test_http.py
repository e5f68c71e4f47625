"""The http check on bytes: answers of all kinds, cut into pieces at any place."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.balancer.probing.checks import ProbeVerdict, UncheckableTarget, find, registry
from holdfast.balancer.probing.files import PROBE_FILES
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec
from holdfast.config.sections.healthcheck import HealthCheck

HEAD = b"HTTP/1.1 200 OK\r\nServer: x\r\n"
EMPTY = HEAD + b"Content-Length: 0\r\n\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def target(backend_header: str = "", **settings: object) -> TargetSpec:
    check = HealthCheck(type="http", **settings)  # type: ignore[arg-type]
    return TargetSpec("web1", "192.0.2.1", 8080, check, backend_header)


def verdict(*said: bytes, **settings: Any) -> ProbeVerdict | None:
    """What becomes of a backend that says this, piece by piece; an empty piece means that it closes."""
    conversation = find(target(**settings)).prepare(target(**settings), PROBE_FILES)()
    conversation.start()
    for piece in said:
        answer = conversation.feed(piece)
        if isinstance(answer, ProbeVerdict):
            return answer
        assert answer == b"", "everything was said with the request"
    return None


def code(*said: bytes, **settings: object) -> ProbeCode | None:
    found = verdict(*said, **settings)
    return None if found is None else found.code


def test_the_registry_knows_the_modules_by_name() -> None:
    assert list(registry()) == ["dns", "grpc", "http", "https", "icmp", "tcp", "udp"]


def test_an_unknown_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UncheckableTarget,
        match=r"web1: there is no check type 'smtp'; there are: dns, grpc, http, https, icmp, tcp, udp",
    ):
        find(TargetSpec("web1", "192.0.2.1", 25, HealthCheck(type="smtp")))  # type: ignore[arg-type]


def test_the_request_names_the_host_and_asks_to_close() -> None:
    said = find(target()).prepare(target(path="/health?x=1", host="www.example.org"), PROBE_FILES)().start()
    assert isinstance(said, bytes)
    lines = said.split(b"\r\n")
    assert lines[:2] == [b"GET /health?x=1 HTTP/1.1", b"Host: www.example.org"]
    assert b"Connection: close" in lines
    assert said.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("address", "port", "host"),
    [("192.0.2.1", 80, "192.0.2.1"), ("192.0.2.1", 81, "192.0.2.1:81"), ("2001:db8::1", 8080, "[2001:db8::1]:8080")],
)
def test_without_a_host_the_address_is_named(address: str, port: int, host: str) -> None:
    plain = TargetSpec("web1", address, port, HealthCheck(type="http"))
    said = find(plain).prepare(plain, PROBE_FILES)().start()
    assert isinstance(said, bytes)
    assert f"\r\nHost: {host}\r\n".encode() in said


def test_head_and_headers_are_sent_and_replace_the_usual_ones() -> None:
    asked = target(method="HEAD", headers=("X-Probe: holdfast: 1", "user-agent: mine"))
    said = find(asked).prepare(asked, PROBE_FILES)().start()
    assert isinstance(said, bytes)
    lines = said.split(b"\r\n")
    assert lines[0] == b"HEAD / HTTP/1.1"
    assert b"X-Probe: holdfast: 1" in lines
    assert [line for line in lines if line.lower().startswith(b"user-agent")] == [b"user-agent: mine"]


@pytest.mark.parametrize("value", ["/a b", "/a\r\nX: y", "no-slash", ""])
def test_a_path_that_would_break_the_request_is_refused(value: str) -> None:
    with pytest.raises(UncheckableTarget, match="web1: path"):
        find(target()).prepare(target(path=value), PROBE_FILES)


def test_a_body_that_is_no_regular_expression_is_refused() -> None:
    with pytest.raises(UncheckableTarget, match=r"web1: body '\(' is not a regular expression"):
        find(target()).prepare(target(body="("), PROBE_FILES)


@pytest.mark.parametrize(
    ("status", "statuses", "expected"),
    [
        (200, ("200-299",), ProbeCode.L7OK),
        (299, ("200-299",), ProbeCode.L7OK),
        (300, ("200-299",), ProbeCode.L7STS),
        (404, ("200", "404"), ProbeCode.L7OK),
        (503, ("200-399",), ProbeCode.L7STS),
        (101, ("101",), ProbeCode.L7OK),
    ],
)
def test_the_status_decides(status: int, statuses: tuple[str, ...], expected: ProbeCode) -> None:
    assert code(b"HTTP/1.1 %d Whatever\r\n\r\n" % status, status=statuses) is expected


def test_B20_a_redirect_fails_unless_it_is_expected_and_says_where_to() -> None:
    said = b"HTTP/1.1 302 Found\r\nLocation: https://www.example.org/login\r\n\r\n"
    found = verdict(said)
    assert found == ProbeVerdict(False, ProbeCode.L7STS, "302 Found to https://www.example.org/login, expected 200–299")
    assert code(said, status=("200-399",)) is ProbeCode.L7OK


def test_interim_answers_are_skipped_however_many_come() -> None:
    assert code(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" * 5_000 + EMPTY) is ProbeCode.L7OK


def test_the_backend_header_names_who_answered() -> None:
    found = verdict(HEAD + b"x-backend:  web-7 \r\n\r\n", backend_header="X-Backend")
    assert found is not None
    assert found.answered_by == "web-7"


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2OO OK\r\n\r\n",
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/1.1200 OK\r\n\r\n",
        b"\0" * 70_000,
    ],
)
def test_garbage_is_named_as_such_without_waiting_for_more(said: bytes) -> None:
    found = verdict(said)
    assert found is not None
    assert found.code is ProbeCode.L7RSP
    assert "not HTTP" in found.detail


def test_a_head_without_end_is_cut_off() -> None:
    found = verdict(HEAD, *[b"X-Padding: " + b"y" * 1_000 + b"\r\n"] * 70)
    assert found == ProbeVerdict(False, ProbeCode.L7RSP, "the head is longer than 64 KiB")


def test_a_head_of_60_kib_is_read() -> None:
    assert code(HEAD + b"X-Padding: " + b"y" * 60_000 + b"\r\n\r\n") is ProbeCode.L7OK


@pytest.mark.parametrize(("said", "where"), [((), "without an answer"), ((HEAD,), "in the middle of the head")])
def test_a_backend_that_closes_early_has_given_no_answer(said: Sequence[bytes], where: str) -> None:
    assert verdict(*said, b"") == ProbeVerdict(False, ProbeCode.L7RSP, f"closed {where}")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((HEAD + b"Content-Length: 2\r\n\r\nOK",), ProbeCode.L7OK),
        ((HEAD + b"Content-Length: 2\r\n\r\nNO",), ProbeCode.L7RSP),
        ((HEAD + b"Content-Length: 1\r\n\r\nOK",), ProbeCode.L7RSP),
        ((HEAD + b"\r\nall is O", b"K here"), ProbeCode.L7OK),
        ((HEAD + b"\r\nall is O", b""), ProbeCode.L7RSP),
        ((HEAD + b"Content-Length: 100\r\n\r\nshort", b""), ProbeCode.L7RSP),
        ((CHUNKED + b"1\r\nO\r\n1;name=value\r\nK\r\n0\r\n\r\n",), ProbeCode.L7OK),
        ((CHUNKED + b"1\r\nO\r\n0\r\n\r\n",), ProbeCode.L7RSP),
        ((CHUNKED + b"zz\r\n",), ProbeCode.L7RSP),
        ((CHUNKED + b"1\r\nOK\r\n",), ProbeCode.L7RSP),
        ((CHUNKED + b"5\r\nO", b""), ProbeCode.L7RSP),
        ((EMPTY,), ProbeCode.L7RSP),
    ],
)
def test_the_body_must_match(said: Sequence[bytes], expected: ProbeCode) -> None:
    assert code(*said, body="OK") is expected


def test_a_body_that_floods_is_read_no_further_than_64_kib() -> None:
    assert code(HEAD + b"\r\n", *[b"x" * 8_192] * 8, body="OK") is ProbeCode.L7RSP
    assert code(HEAD + b"\r\n", *[b"x" * 8_192] * 7, b"x" * 8_000 + b"OK", body="OK") is ProbeCode.L7OK


def test_without_a_body_to_match_the_head_is_enough() -> None:
    assert code(HEAD + b"Content-Length: 1000000000\r\n\r\n") is ProbeCode.L7OK


answers = st.sampled_from(
    [
        EMPTY,
        HEAD + b"Content-Length: 10\r\n\r\nnothing OK",
        CHUNKED + b"3\r\nxxO\r\n2\r\nKx\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nxxx\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 302 Found\r\nLocation: /\r\n\r\n",
        b"HTTP/1.0 200\r\n\r\nOK",
        b"220 smtp.example.org ESMTP\r\n",
        HEAD + b"Content-Length: 5\r\n\r\nOK",
    ]
)


@given(answers, st.lists(st.integers(0, 120), max_size=12))
@example(CHUNKED + b"3\r\nxxO\r\n2\r\nKx\r\n0\r\n\r\n", list(range(120)))
def test_how_an_answer_is_cut_into_pieces_does_not_matter(said: bytes, cuts: list[int]) -> None:
    at = [0, *sorted(cut for cut in set(cuts) if 0 < cut < len(said)), len(said)]
    pieces = [said[start:end] for start, end in itertools.pairwise(at)]
    whole, cut = verdict(said, b"", body="OK"), verdict(*pieces, b"", body="OK")
    assert whole is not None
    assert cut is not None
    assert (cut.passed, cut.code) == (whole.passed, whole.code)


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=20))
def test_no_bytes_whatever_are_more_than_a_failure(pieces: list[bytes]) -> None:
    found = verdict(*pieces, b"", body="OK")
    assert found is not None


@given(st.lists(st.binary(min_size=1, max_size=200), max_size=20))
def test_no_chunks_whatever_are_more_than_a_verdict(pieces: list[bytes]) -> None:
    assert verdict(CHUNKED, *pieces, b"", body="OK") is not None
