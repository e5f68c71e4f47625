"""grpc: the frames of HTTP/2 that decide, and rubbish."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.balancer.probing.checks import ProbeVerdict, find
from holdfast.balancer.probing.checks.grpc import GrpcConversation, request
from holdfast.balancer.probing.files import PROBE_FILES
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec
from holdfast.config.sections.healthcheck import HealthCheck

TARGET = TargetSpec("web1", "192.0.2.1", 50051, HealthCheck(type="grpc", service="shop"))


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


SETTINGS = frame(4, 0, 0, b"\0\3\0\0\0\x64")
HEADERS = frame(1, 4, 1, b"\x88")
TRAILERS = frame(1, 5, 1, b"\x88")


def status(number: int) -> bytes:
    body = b"\x08" + bytes([number]) if number else b""
    return frame(0, 0, 1, struct.pack(">BI", 0, len(body)) + body)


def verdict(said: bytes, *, step: int = 0) -> ProbeVerdict | bytes:
    conversation = GrpcConversation(request(TARGET))
    found: ProbeVerdict | bytes = b""
    for at in range(0, len(said), step or len(said) or 1):
        found = conversation.feed(said[at : at + (step or len(said))])
        if isinstance(found, ProbeVerdict):
            return found
    return found


@pytest.mark.parametrize(
    ("number", "code"), [(1, ProbeCode.L7OK), (2, ProbeCode.L7STS), (0, ProbeCode.L7STS), (9, ProbeCode.L7STS)]
)
@pytest.mark.parametrize("step", [0, 1, 7])
def test_the_status_in_the_message_decides(number: int, code: ProbeCode, step: int) -> None:
    found = verdict(SETTINGS + HEADERS + status(number) + TRAILERS, step=step)
    assert isinstance(found, ProbeVerdict)
    assert found.code is code


def test_headers_alone_are_a_refusal() -> None:
    found = verdict(SETTINGS + TRAILERS)
    assert isinstance(found, ProbeVerdict)
    assert (found.code, "refused" in found.detail) == (ProbeCode.L7RSP, True)


def test_settings_and_pings_are_acknowledged() -> None:
    assert verdict(SETTINGS) == frame(4, 1, 0)
    assert verdict(frame(6, 0, 0, b"12345678")) == frame(6, 1, 0, b"12345678")


def test_padding_is_removed() -> None:
    body = struct.pack(">BI", 0, 2) + b"\x08\1"
    padded = frame(0, 8, 1, bytes([3]) + body + b"\0\0\0")
    found = verdict(padded)
    assert isinstance(found, ProbeVerdict)
    assert found.passed


def test_the_request_names_method_and_service() -> None:
    said = find(TARGET).prepare(TARGET, PROBE_FILES)().start()
    assert isinstance(said, bytes)
    assert said.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert b"/grpc.health.v1.Health/Check" in said
    assert said.endswith(b"\x0a\x04shop")


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_rubbish_never_raises_and_never_passes(one: bytes, other: bytes) -> None:
    conversation = GrpcConversation(request(TARGET))
    for data in (one, other, b""):
        found = conversation.feed(data)
        if isinstance(found, ProbeVerdict):
            assert not found.passed or b"\x08\x01" in one + other
            return
    pytest.fail("a closed connection must have a verdict")
