"""Health checks: how a backend is probed, and how many results in a row change its state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from holdfast.config.schema.field import Address, FieldConflict, FieldDoc, File, Regex, ScalarKind, SecretFile
from holdfast.config.schema.scalars import Unfit, file, quote
from holdfast.config.sections.stored import StoredSection, Unsigned, set_canonical_address

_WEB = ("http", "https")
_ONLY_FOR = {
    "path": _WEB,
    "method": _WEB,
    "headers": _WEB,
    "header_files": _WEB,
    "host": (*_WEB, "grpc"),
    "status": _WEB,
    "body": (*_WEB, "udp"),
    "sni": ("https",),
    "verify": ("https",),
    "ca_file": ("https",),
    "cert_file": ("https",),
    "key_file": ("https",),
    "send": ("udp",),
    "query": ("dns",),
    "record": ("dns",),
    "service": ("grpc",),
}
_SERVICE = 127
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_OWN_HEADERS = ("connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade")
_SECRET_HEADERS = re.compile(r"(?i)authorization|x-auth|cookie|api-?key|password|secret|token")


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _statuses(given: str) -> str:
    """Read `200` or `200-299`."""
    low, dash, high = given.partition("-")
    ends = (low, high) if dash else (low, low)
    if not all(end.isascii() and end.isdigit() and len(end) == 3 for end in ends) or ends[0] > ends[1]:
        raise Unfit(f"is {quote(given)}: write a status code such as 200, or a range such as 200-299")
    return given


def split_header(given: str) -> tuple[str, str]:
    """Split `Name: value`."""
    name, _, value = given.partition(":")
    return name, value.strip(" ")


def _header_name(given: str) -> tuple[str, str]:
    """Read `Name: value`. No message repeats the value, which may be a secret."""
    name, value = split_header(given)
    if ":" not in given or not _HEADER_NAME.fullmatch(name):
        raise Unfit('is not a header: write its name, a colon and its value, in quotes, such as "X-Probe: holdfast"')
    if name.lower() == "host":
        raise Unfit("is the host header: use the field host")
    if name.lower() in _OWN_HEADERS:
        raise Unfit(f"is header {name}, which the probe itself decides: remove it")
    return name, value


def _header(given: str) -> str:
    name, value = _header_name(given)
    if not (value and value.isascii() and value.isprintable()):
        raise Unfit(f"is header {name} with a value that is empty or not printable ASCII: correct it")
    if _SECRET_HEADERS.search(name):
        raise Unfit(f"is header {name}, which looks like a secret: write its value into a file, and use header_files")
    return f"{name}: {value}"


def _header_file(given: str) -> str:
    name, value = _header_name(given)
    try:
        return f"{name}: {file(value)}"
    except Unfit:
        raise Unfit(f"is header {name} without a file: write its name, a colon and an absolute path") from None


Header = Annotated[str, ScalarKind('HTTP header, such as `"X-Probe: holdfast"`', _header, quoted=True)]
HeaderFile = Annotated[
    str,
    ScalarKind(
        'HTTP header and the file that its value is in, such as `"Authorization: /etc/holdfast/probe-token"`',
        _header_file,
        quoted=True,
    ),
]
Statuses = Annotated[str, ScalarKind("HTTP status code or range, such as `200` or `200-299`", _statuses, quoted=True)]


class HealthCheck(StoredSection, frozen=True, kw_only=True):
    """One health check of backends."""

    type: Annotated[
        Literal["icmp", "tcp", "http", "https", "udp", "dns", "grpc"],
        FieldDoc(
            "Kind of probe: a ping, a TCP connection, an HTTP request, a datagram, a DNS question, gRPC's health check."
        ),
    ]
    port: Annotated[
        Unsigned | None,
        FieldDoc(
            "Port to probe; `null` for the port of the backend.",
            small="there is no such port",
            big="there is no such port",
            least=1,
            most=65_535,
        ),
    ] = None
    interval: Annotated[
        timedelta,
        FieldDoc(
            "Time from the start of one probe to the start of the next, while the backend is up without failures.",
            small="probes put noticeable load on the backend",
            big="a failed backend gets new flows for `fall` times that long",
            least=_seconds(0.01),
            most=_seconds(3_600),
        ),
    ] = _seconds(1)
    fast_interval: Annotated[
        timedelta | None,
        FieldDoc(
            "Interval while the state is unknown or about to change. `null` for `interval`.",
            small="an overloaded backend gets even more probes",
            big="a change of state takes that much longer",
            least=_seconds(0.01),
            most=_seconds(3_600),
        ),
    ] = None
    down_interval: Annotated[
        timedelta | None,
        FieldDoc(
            "Interval while the backend is down without passes. `null` for `interval`.",
            small="backends that are down cost as many probes as those that are up",
            big="a recovered backend stays unused for `rise` times that long",
            least=_seconds(0.01),
            most=_seconds(3_600),
        ),
    ] = None
    timeout: Annotated[
        timedelta,
        FieldDoc(
            "Longest duration of a probe.",
            small="a backend under load counts as failed",
            big="a hanging backend is detected that much later",
            least=_seconds(0.01),
            most=_seconds(300),
        ),
    ] = _seconds(1)
    rise: Annotated[
        Unsigned,
        FieldDoc(
            "Number of passes in a row that bring a backend up.",
            small="a flapping backend serves again after its first pass",
            big="a recovered backend stays unused",
            least=1,
            most=1_000,
        ),
    ] = 2
    fall: Annotated[
        Unsigned,
        FieldDoc(
            "Number of failures in a row that take a backend down.",
            small="one lost packet takes a backend down",
            big="a failed backend keeps getting new flows",
            least=1,
            most=1_000,
        ),
    ] = 3
    jitter: Annotated[
        Unsigned,
        FieldDoc(
            "Percent of the interval by which each probe is randomly moved, in both directions.",
            small="the probes of many balancers synchronise and arrive at once",
            big="the interval between probes varies widely",
            least=0,
            most=50,
        ),
    ] = 10
    source: Annotated[Address | None, FieldDoc("Source address of probes; `null` lets the kernel choose.")] = None
    method: Annotated[Literal["GET", "HEAD"], FieldDoc("Method of the HTTP request; `HEAD` asks for no body.")] = "GET"
    path: Annotated[str, FieldDoc("Path of the HTTP request.")] = "/"
    headers: Annotated[
        tuple[Header, ...],
        FieldDoc("Headers of the HTTP request, besides Host. For a secret use `header_files`.", alone=True),
    ] = ()
    header_files: Annotated[
        tuple[HeaderFile, ...],
        FieldDoc(
            "Headers of the HTTP request whose values are in files, read again when they change. A file that every "
            "user of the machine can read is refused.",
            alone=True,
        ),
    ] = ()
    host: Annotated[str | None, FieldDoc("Host header; `null` for the address of the backend.")] = None
    sni: Annotated[
        str | None,
        FieldDoc("Name in the TLS handshake, which the certificate must have; `null` for `host`, else the address."),
    ] = None
    status: Annotated[
        tuple[Statuses, ...],
        FieldDoc("Accepted status codes. A redirect is a status like any other, and is not followed.", alone=True),
    ] = ("200-299",)
    body: Annotated[
        Regex | None, FieldDoc("Pattern that the first 64 KiB of the body must contain; `null` ignores the body.")
    ] = None
    verify: Annotated[
        bool, FieldDoc("Whether the certificate must be valid for the name and signed by a trusted authority.")
    ] = True
    ca_file: Annotated[
        File | None,
        FieldDoc(
            "File of trusted authorities (PEM); `null` for those of this machine. This file, `cert_file` and "
            "`key_file` are read again when they change."
        ),
    ] = None
    cert_file: Annotated[
        File | None, FieldDoc("Client certificate (PEM), for backends that ask for one; `null` for none.")
    ] = None
    key_file: Annotated[
        SecretFile | None,
        FieldDoc("Private key of `cert_file` (PEM). Refused if every user of the machine can read it."),
    ] = None

    send: Annotated[str, FieldDoc("Text of the datagram that a udp check sends; the server must answer it.")] = ""
    query: Annotated[str, FieldDoc("Name that a dns check asks for.")] = ""
    record: Annotated[Literal["A", "NS", "SOA", "TXT", "AAAA"], FieldDoc("Type of the record asked for.")] = "A"
    service: Annotated[str, FieldDoc("Service that a grpc check asks about; empty for the whole server.")] = ""

    def __post_init__(self) -> None:
        set_canonical_address(self, "source")

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Accepted status codes as numbers, both ends included."""
        pairs = (text.partition("-") for text in self.status)
        return tuple((int(low), int(high or low)) for low, _, high in pairs)

    @property
    def secret_headers(self) -> tuple[tuple[str, str], ...]:
        """Names of headers whose values are in files, with the files."""
        return tuple(split_header(one) for one in self.header_files)

    def conflicts(self) -> Iterator[FieldConflict]:
        yield from self._web_conflicts()
        for field, types in _ONLY_FOR.items():
            if self.type not in types and getattr(self, field) != getattr(_TYPICAL, field):
                yield FieldConflict(
                    (field,), f"has no effect on a check of type {self.type}: remove it, or use {types[0]}"
                )
        if self.type == "udp" and not self.send:
            yield FieldConflict(("send",), "is empty: write a text that the server answers")
        if self.type == "dns" and not self.query:
            yield FieldConflict(("query",), "is empty: write a name that the server knows")
        if len(self.service.encode()) > _SERVICE:
            yield FieldConflict(("service",), f"is longer than {_SERVICE} bytes: no such service can be asked about")
        if self.type == "icmp" and self.port is not None:
            yield FieldConflict(("port",), "has no effect on a check of type icmp: remove it")
        if not self.path.startswith("/"):
            yield FieldConflict(("path",), "does not begin with a slash: write one")
        if not self.status:
            yield FieldConflict(("status",), "is empty, so that no answer would pass: list at least one status")

    def _web_conflicts(self) -> Iterator[FieldConflict]:
        if self.method == "HEAD" and self.body is not None:
            yield FieldConflict(("body", "method"), "cannot match: the answer to HEAD has no body; use method: GET")
        for field, other in (("cert_file", "key_file"), ("key_file", "cert_file")):
            if getattr(self, field) is not None and getattr(self, other) is None:
                yield FieldConflict((field, other), f"needs {other} as well")
        seen: set[str] = set()
        for field in ("headers", "header_files"):
            for name, _ in map(split_header, getattr(self, field)):
                if name.lower() in seen:
                    yield FieldConflict((field,), f"has header {name} a second time: remove one")
                seen.add(name.lower())


_TYPICAL = HealthCheck(type="http")
