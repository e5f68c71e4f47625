"""The balancer: what it serves, how it probes, and how careful it is after a start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Literal

from holdfast.config.schema.field import FieldConflict, FieldDoc, Name, ScalarKind, Section
from holdfast.config.schema.scalars import Unfit, closest, quote, show_duration
from holdfast.config.sections.frontend import Backend, Frontend
from holdfast.config.sections.healthcheck import HealthCheck

TABLE_SIZES = (251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65537, 131071)
"""Primes: only then does every step width visit every bucket."""


def _table_size(given: str) -> int:
    if given not in map(str, TABLE_SIZES):
        raise Unfit(f"is {quote(given)}: write one of the primes {', '.join(map(str, TABLE_SIZES))}")
    return int(given)


def _table_name(given: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", given):
        raise Unfit(f"is {quote(given)}: write a letter, then letters, digits, '.', '_' or '-', 63 at most")
    return given


TableName = Annotated[str, ScalarKind("name of a table", _table_name, quoted=True)]
TableSize = Annotated[int, ScalarKind(f"one of {', '.join(map(str, TABLE_SIZES))}", _table_size)]


class BalancerDataplaneSettings(Section, frozen=True, kw_only=True):
    """What carries the traffic."""

    kind: Annotated[
        Literal["nftables", "dry-run"],
        FieldDoc("Which dataplane: `nftables` is the kernel's own, `dry-run` only says what it would do."),
    ] = "nftables"
    table_size: Annotated[
        TableSize,
        FieldDoc(
            "Buckets per frontend. A hundred times as many as backends keeps the shares even; a change of the size "
            "moves every flow that is not established."
        ),
    ] = 65537
    table: Annotated[
        TableName,
        FieldDoc(
            "nftables: the name of our table of family `inet`. All that is in it is ours, and nothing else is. A new "
            "name makes a new table; the old one stays until somebody deletes it."
        ),
    ] = "holdfast"
    snat: Annotated[
        bool,
        FieldDoc(
            "nftables: whether backends see the balancer's address as the client's. For backends whose replies do "
            "not come back through the balancer; without it such replies are lost, with it clients' addresses are."
        ),
    ] = False


class BalancerSettings(Section, frozen=True, kw_only=True):
    """The load balancer."""

    name: Annotated[Name | None, FieldDoc("What peers and people call this balancer; `null` for the host's name.")] = (
        None
    )
    source: Annotated[
        Literal["file", "etcd"],
        FieldDoc("Where frontends, backends and health checks come from: this file, or the store."),
    ] = "file"
    netns: Annotated[Name | None, FieldDoc("The network namespace to probe from; `null` for the balancer's own.")] = (
        None
    )
    transition_history: Annotated[
        int,
        FieldDoc(
            "How many transitions of each backend are kept to be shown.",
            small="what happened in the night is gone in the morning",
            big="it costs memory for every backend",
            least=1,
            most=1_000,
        ),
    ] = 20
    sync_interval: Annotated[
        timedelta,
        FieldDoc(
            "Between two full comparisons with the dataplane.",
            small="the dataplane is read more than it is used",
            big="what somebody changed behind our back stays for that long",
            least=timedelta(seconds=1),
            most=timedelta(hours=1),
        ),
    ] = timedelta(seconds=30)
    startup_min_delay: Annotated[
        timedelta,
        FieldDoc(
            "After a start nothing is written for this long, whatever is known.",
            small="frontends are written with the first results, before they mean much",
            big="a change that came during the restart waits for that long",
            least=timedelta(0),
            most=timedelta(minutes=10),
        ),
    ] = timedelta(seconds=5)
    startup_max_delay: Annotated[
        timedelta,
        FieldDoc(
            "After this long a frontend is written although some of its backends are not known yet. With both delays 0 "
            "there is no warm-up.",
            small="backends that were not probed in time count as dead after every restart",
            big="a frontend with one backend that cannot be probed follows nothing for that long",
            least=timedelta(0),
            most=timedelta(hours=1),
        ),
    ] = timedelta(seconds=30)
    dataplane: BalancerDataplaneSettings = BalancerDataplaneSettings()
    healthchecks: Annotated[Mapping[str, HealthCheck], FieldDoc("How backends are probed, by name.")] = {}
    backends: Annotated[Mapping[str, Backend], FieldDoc("The servers behind the frontends, by name.")] = {}
    frontends: Annotated[Mapping[str, Frontend], FieldDoc("The addresses that clients use, by name.")] = {}

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.startup_min_delay > self.startup_max_delay:
            yield FieldConflict(
                ("startup_min_delay", "startup_max_delay"),
                f"must not be longer than balancer.startup_max_delay ({show_duration(self.startup_max_delay)})",
            )
        yield from self._unknown_checks()
        yield from self._portless_checks()
        for name, frontend in self.frontends.items():
            yield from self._unfit_members(name, frontend)
        yield from self._claimed_twice()
        yield from self._announced_for_nothing()
        if self.source == "file":
            yield from self._only_with_etcd()

    def _unknown_checks(self) -> Iterator[FieldConflict]:
        for name, backend in self.backends.items():
            for check in backend.healthcheck:
                if check not in self.healthchecks:
                    sentence = (
                        f"names the check {check!r}, which is not in healthchecks{closest(check, self.healthchecks)}"
                    )
                    yield FieldConflict((f"backends.{name}.healthcheck", "healthchecks"), sentence)

    def _portless_checks(self) -> Iterator[FieldConflict]:
        for name, backend in self.backends.items():
            checks = [(check, self.healthchecks[check]) for check in backend.healthcheck if check in self.healthchecks]
            for check, how in checks:
                if how.type != "icmp" and how.port is None and not backend.port:
                    sentence = f"names the check {check!r}, which has no port, and neither has the backend: give it one"
                    yield FieldConflict((f"backends.{name}.healthcheck", "healthchecks"), sentence)

    def _unfit_members(self, name: str, frontend: Frontend) -> Iterator[FieldConflict]:
        spots: dict[tuple[str, int], str] = {}
        for index, backend_name, _ in frontend.members():
            place = f"frontends.{name}.pools[{index}].backends.{backend_name}"
            backend = self.backends.get(backend_name)
            if backend is None:
                sentence = f"is not in balancer.backends{closest(backend_name, self.backends)}"
                yield FieldConflict((place, "backends"), sentence)
                continue
            if backend.address is None:
                continue
            if (":" in backend.address) != (":" in frontend.address):
                sentence = f"has the address {backend.address}, not of the family of the frontend ({frontend.address})"
                yield FieldConflict((place, "backends"), sentence)
            spot = backend.address, backend.port
            if spots.setdefault(spot, backend_name) != backend_name:
                sentence = f"has the address and port of {spots[spot]}, which is in this frontend already: remove one"
                yield FieldConflict((place, "backends"), sentence)

    def _claimed_twice(self) -> Iterator[FieldConflict]:
        claims: dict[tuple[str, str, int], str] = {}
        for name, frontend in self.frontends.items():
            claim = frontend.address, frontend.protocol, frontend.port
            if claims.setdefault(claim, name) != name:
                sentence = f"has the address, protocol and port of frontend {claims[claim]}: remove one"
                yield FieldConflict((f"frontends.{name}.address",), sentence)

    def _announced_for_nothing(self) -> Iterator[FieldConflict]:
        for name, frontend in self.frontends.items():
            if frontend.announce is not None and self.dataplane.kind == "dry-run":
                sentence = "would draw traffic to a dataplane that carries none (dry-run): remove it"
                yield FieldConflict((f"frontends.{name}.announce", "dataplane.kind"), sentence)

    def _only_with_etcd(self) -> Iterator[FieldConflict]:
        for name, backend in self.backends.items():
            for field in ("endpoint", "host"):
                if getattr(backend, field) is not None:
                    yield FieldConflict((f"backends.{name}.{field}", "source"), "needs balancer.source: etcd")
