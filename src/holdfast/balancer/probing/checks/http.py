"""http: one GET or HEAD on a new connection; the status, and if configured the body, decide.

The head must be complete, valid and at most 64 KiB. A redirect is a status like any other: it passes when its code is
expected, fails when it is not, and is never followed (B20). Interim answers (1xx) are skipped. The body matters only
with a regular expression, which is searched in its first 64 KiB after chunked decoding, in linear time (B36).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from holdfast import __version__
from holdfast.balancer.probing.checks import (
    Carrier,
    CheckFiles,
    CheckType,
    Conversation,
    ProbeVerdict,
    UncheckableTarget,
)
from holdfast.balancer.probing.checks.body import Body, BodyError
from holdfast.balancer.probing.messages import ProbeCode, TargetSpec
from holdfast.config.schema.pattern import NotAPattern, Pattern, compile_pattern
from holdfast.config.sections.healthcheck import HealthCheck, split_header

LIMIT = 64 << 10
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9]\d\d)(?: ([^\r\n]*))?\r?\n")
_INTERIM = re.compile(rb"HTTP/1\.1 1(?!01)\d\d[ \r\n]")
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_PORTS = {"http": 80, "https": 443}
_SEARCHES = 32  # bounds the searches in a body that arrives byte by byte
_WAIT = b""


class Expectation(NamedTuple):
    """Expected answer of a target, read once from its settings."""

    request: Callable[[], bytes]
    """Request of the next probe; it changes with the files that its secret headers are in."""
    statuses: tuple[tuple[int, int], ...]
    body: Pattern | None
    backend_header: re.Pattern[bytes] | None

    def accepts(self, status: int) -> bool:
        # protection: B20, a redirect is not accepted unless its code is listed
        return any(low <= status <= high for low, high in self.statuses)


class HttpConversation:
    """One request and its answer."""

    def __init__(self, expectation: Expectation) -> None:
        self._expected = expectation
        self._received = b""
        self._body: Body | None = None
        self._passing = ProbeVerdict(True, ProbeCode.L7OK)
        self._searches = 0

    def start(self) -> bytes:
        return self._expected.request()

    def feed(self, data: bytes) -> bytes | ProbeVerdict:
        if self._body is not None:
            return self._read_body(data)
        self._received += data
        while head := _HEAD_END.search(self._received):
            answer = self._received[: head.end()]
            self._received = self._received[head.end() :]
            if not _INTERIM.match(answer):
                return self._read_head(answer, self._received)
        return self._early(closed=not data)

    def timed_out(self) -> ProbeVerdict:
        had = "its body did not end or match" if self._body else "its head was incomplete" if self._received else ""
        return ProbeVerdict(False, ProbeCode.L7TOUT, had)

    def _early(self, *, closed: bool) -> bytes | ProbeVerdict:
        """Check a head that is not complete yet, and fails early when it cannot become valid."""
        if self._received and not _could_be_http(self._received):
            return _broken(f"the answer is not HTTP, it begins with {self._received[:24]!r}")
        if closed:
            return _broken("closed " + ("in the middle of the head" if self._received else "without an answer"))
        if len(self._received) > LIMIT:
            return _broken(f"the head is longer than {LIMIT >> 10} KiB")
        return _WAIT

    def _read_head(self, head: bytes, rest: bytes) -> bytes | ProbeVerdict:
        line = _STATUS.match(head)
        if line is None:
            return _broken(f"the answer is not HTTP, it begins with {head[:24]!r}")
        if len(head) > LIMIT:
            return _broken(f"the head is longer than {LIMIT >> 10} KiB")
        status = int(line[1])
        if not self._expected.accepts(status):
            return ProbeVerdict(
                False, ProbeCode.L7STS, _unexpected(status, line[2] or b"", head, self._expected.statuses)
            )
        self._passing = ProbeVerdict(True, ProbeCode.L7OK, str(status), _header(self._expected.backend_header, head))
        if self._expected.body is None:
            return self._passing
        self._body = Body.of(head, LIMIT)
        return self._read_body(rest, closed=False)

    def _read_body(self, data: bytes, *, closed: bool | None = None) -> bytes | ProbeVerdict:
        assert self._body is not None
        assert self._expected.body is not None
        try:
            ended = self._body.feed(data, closed=not data if closed is None else closed)
        except BodyError as broken:
            return _broken(str(broken))
        self._searches += 1
        if (ended or self._searches <= _SEARCHES) and self._expected.body.search(self._body.content):
            return self._passing
        if ended:
            return _broken(f"nothing in the body's first {len(self._body.content):,} bytes matches")
        return _WAIT


def _broken(detail: str) -> ProbeVerdict:
    return ProbeVerdict(False, ProbeCode.L7RSP, detail)


def _could_be_http(received: bytes) -> bool:
    return b"HTTP/1.".startswith(received[:7]) if len(received) < 7 else received.startswith(b"HTTP/1.")


def _header(pattern: re.Pattern[bytes] | None, head: bytes) -> str:
    found = pattern.search(head) if pattern else None
    return found[1].decode(errors="replace").strip() if found else ""


def header(name: str) -> re.Pattern[bytes]:
    """Pattern that finds the value of a header in a head."""
    return re.compile(rb"^" + re.escape(name.encode()) + rb":[ \t]*([^\r\n]*)", re.IGNORECASE | re.MULTILINE)


_LOCATION = header("Location")


def _unexpected(status: int, phrase: bytes, head: bytes, wanted: tuple[tuple[int, int], ...]) -> str:
    place = _header(_LOCATION, head) if 300 <= status < 400 else ""
    found = f"{status} {phrase[:60].decode(errors='replace').strip()}".rstrip() + (
        f" to {place[:200]}" if place else ""
    )
    ranges = ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in wanted)
    return f"{found}, expected {ranges}"


def expectation(target: TargetSpec, files: CheckFiles) -> Expectation:
    check = target.check
    for name, value in (("path", check.path), ("host", check.host or "")):
        if re.search(r"[\s\x00-\x1f\x7f]", value):
            raise UncheckableTarget(f"{target.id}: {name} {value!r} has a space or control character in it")
    if not check.path.startswith("/"):
        raise UncheckableTarget(f"{target.id}: path {check.path!r} does not begin with /")
    try:
        body = compile_pattern(check.body) if check.body else None
    except NotAPattern as error:
        raise UncheckableTarget(f"{target.id}: body {check.body!r} is not a regular expression: {error}") from error
    header_ = header(target.backend_header) if target.backend_header else None
    return Expectation(_request(check, target, files), check.ranges, body, header_)


def _request(check: HealthCheck, target: TargetSpec, files: CheckFiles) -> Callable[[], bytes]:
    if check.header_files:
        secrets = files.headers(target)
        return lambda: _head(check, target, secrets())
    fixed = _head(check, target, {})
    return lambda: fixed


def _head(check: HealthCheck, target: TargetSpec, secrets: Mapping[str, str]) -> bytes:
    address = f"[{target.address}]" if ":" in target.address else target.address
    port = "" if target.port == _PORTS.get(check.type) else f":{target.port}"
    usual = {"User-Agent": f"holdfast/{__version__}", "Accept": "*/*"}
    given = [*usual.items(), *map(split_header, check.headers), *secrets.items()]
    headers = {name.lower(): f"{name}: {value}" for name, value in given}  # a configured one replaces the usual one
    lines = (
        f"{check.method} {check.path} HTTP/1.1",
        f"Host: {check.host or address + port}",
        *headers.values(),
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def prepare(target: TargetSpec, files: CheckFiles) -> Callable[[], Conversation]:
    wanted = expectation(target, files)
    return lambda: HttpConversation(wanted)


CHECK = CheckType(Carrier.STREAM, prepare)
