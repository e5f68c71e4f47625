"""How a backend is probed, and how many results in a row change the verdict on it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from holdfast.config.schema.field import Address, FieldConflict, FieldDoc, File, Regex, ScalarKind
from holdfast.config.schema.scalars import Unfit, quote
from holdfast.config.sections.stored import StoredSection, Unsigned, set_canonical_address

_WEB = ("http", "https")


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


def _statuses(given: str) -> str:
    """Reads `200` or `200-299`."""
    low, dash, high = given.partition("-")
    ends = (low, high) if dash else (low, low)
    if not all(end.isascii() and end.isdigit() and len(end) == 3 for end in ends) or ends[0] > ends[1]:
        raise Unfit(f"is {quote(given)}: write a status code such as 200, or a range such as 200-299")
    return given


Statuses = Annotated[str, ScalarKind("HTTP status code or range, such as `200` or `200-299`", _statuses, quoted=True)]


class HealthCheck(StoredSection, frozen=True, kw_only=True):
    """One way to find out whether a backend serves."""

    type: Annotated[
        Literal["icmp", "tcp", "http", "https"], FieldDoc("What is done: a ping, a connection, or a request.")
    ]
    port: Annotated[
        Unsigned | None,
        FieldDoc(
            "The port to probe; `null` for the backend's own.",
            small="there is no such port",
            big="there is no such port",
            least=1,
            most=65_535,
        ),
    ] = None
    interval: Annotated[
        timedelta,
        FieldDoc(
            "From the start of one probe to the start of the next, while the backend is fully up.",
            small="probing costs the backend more than serving",
            big="a dead backend gets new flows for `fall` times that long",
            least=_seconds(0.01),
            most=_seconds(3_600),
        ),
    ] = _seconds(1)
    fast_interval: Annotated[
        timedelta | None,
        FieldDoc(
            "The interval while a verdict is open: unknown, or some results against it. `null` for `interval`.",
            small="a backend in trouble is probed harder than one that is not",
            big="the verdict takes that much longer",
            least=_seconds(0.01),
            most=_seconds(3_600),
        ),
    ] = None
    down_interval: Annotated[
        timedelta | None,
        FieldDoc(
            "The interval while the backend is fully down. `null` for `interval`.",
            small="dead backends cost as much as living ones",
            big="a backend that is back stands idle for `rise` times that long",
            least=_seconds(0.01),
            most=_seconds(3_600),
        ),
    ] = None
    timeout: Annotated[
        timedelta,
        FieldDoc(
            "How long a probe may take, from its start to its verdict.",
            small="a backend under load is taken for a dead one",
            big="one that hangs is found out that much later",
            least=_seconds(0.01),
            most=_seconds(300),
        ),
    ] = _seconds(1)
    rise: Annotated[
        Unsigned,
        FieldDoc(
            "Passes in a row that bring a backend up.",
            small="a backend that flaps is let back in at its first good moment",
            big="a recovered backend stands idle",
            least=1,
            most=1_000,
        ),
    ] = 2
    fall: Annotated[
        Unsigned,
        FieldDoc(
            "Failures in a row that take a backend down.",
            small="one lost packet takes a backend out",
            big="a dead backend goes on getting new flows",
            least=1,
            most=1_000,
        ),
    ] = 3
    jitter: Annotated[
        Unsigned,
        FieldDoc(
            "Percent of the interval by which each probe is moved at random, to either side.",
            small="the probes of many balancers fall into step and arrive at once",
            big="the interval is hardly one any more",
            least=0,
            most=50,
        ),
    ] = 10
    source: Annotated[Address | None, FieldDoc("Address to probe from; `null`: the kernel chooses.")] = None
    path: Annotated[str, FieldDoc("What an HTTP request asks for.")] = "/"
    host: Annotated[str | None, FieldDoc("The Host header; `null` for the backend's address.")] = None
    sni: Annotated[
        str | None,
        FieldDoc(
            "The name in the TLS handshake, which the certificate must carry; `null` for `host`, else the address."
        ),
    ] = None
    status: Annotated[
        tuple[Statuses, ...],
        FieldDoc("Accepted status codes. A redirect is a status like any other and is not followed.", alone=True),
    ] = ("200-299",)
    body: Annotated[
        Regex | None, FieldDoc("What the first 64 KiB of the body must contain; `null`: it does not matter.")
    ] = None
    verify: Annotated[bool, FieldDoc("Whether the certificate must be valid, for that name, by a known authority.")] = (
        True
    )
    ca_file: Annotated[File | None, FieldDoc("Authorities to trust (PEM); `null` for those of this machine.")] = None

    def __post_init__(self) -> None:
        set_canonical_address(self, "source")

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The accepted status codes as numbers, both ends included."""
        pairs = (text.partition("-") for text in self.status)
        return tuple((int(low), int(high or low)) for low, _, high in pairs)

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.type not in _WEB:
            for field in ("path", "host", "status", "body"):
                if getattr(self, field) != getattr(_TYPICAL, field):
                    yield FieldConflict(
                        (field,), f"has no effect on a check of type {self.type}: remove it, or use http"
                    )
        if self.type != "https":
            for field in ("sni", "verify", "ca_file"):
                if getattr(self, field) != getattr(_TYPICAL, field):
                    yield FieldConflict(
                        (field,), f"has no effect on a check of type {self.type}: remove it, or use https"
                    )
        if self.type == "icmp" and self.port is not None:
            yield FieldConflict(("port",), "has no effect on a check of type icmp: remove it")
        if not self.path.startswith("/"):
            yield FieldConflict(("path",), "does not begin with a slash")
        if not self.status:
            yield FieldConflict(("status",), "is empty: no answer would ever be good")


_TYPICAL = HealthCheck(type="http")
