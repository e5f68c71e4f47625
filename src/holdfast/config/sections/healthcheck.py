"""Health checks: how a backend is probed, and how many results in a row change its state."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from holdfast.config.schema.field import Address, FieldConflict, FieldDoc, File, Regex, ScalarKind
from holdfast.config.schema.scalars import Unfit, quote
from holdfast.config.sections.stored import StoredSection, Unsigned, set_canonical_address

_WEB = ("http", "https")
_ONLY_FOR = {
    "path": _WEB,
    "host": (*_WEB, "grpc"),
    "status": _WEB,
    "body": (*_WEB, "udp"),
    "sni": ("https",),
    "verify": ("https",),
    "ca_file": ("https",),
    "send": ("udp",),
    "query": ("dns",),
    "record": ("dns",),
    "service": ("grpc",),
}
_SERVICE = 127


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _statuses(given: str) -> str:
    """Read `200` or `200-299`."""
    low, dash, high = given.partition("-")
    ends = (low, high) if dash else (low, low)
    if not all(end.isascii() and end.isdigit() and len(end) == 3 for end in ends) or ends[0] > ends[1]:
        raise Unfit(f"is {quote(given)}: write a status code such as 200, or a range such as 200-299")
    return given


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
    path: Annotated[str, FieldDoc("Path of the HTTP request.")] = "/"
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
        File | None, FieldDoc("File of trusted authorities (PEM); `null` for those of this machine.")
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

    def conflicts(self) -> Iterator[FieldConflict]:
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


_TYPICAL = HealthCheck(type="http")
