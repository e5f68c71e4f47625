"""Balancer: its dataplane, its start-up, and the frontends, backends and health checks of the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Literal

from holdfast.config.schema.field import FieldConflict, FieldDoc, Name, PrefixText, ScalarKind, Section
from holdfast.config.schema.scalars import Unfit, closest, quote, show_duration, within
from holdfast.config.sections.frontend import Backend, Frontend
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.config.sections.vpp import VppSettings
from holdfast.config.sections.vpp_limits import hashed_alike, limits


def _table_name(given: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,62}", given):
        raise Unfit(f"is {quote(given)}: write a letter, then letters, digits, '.', '_' or '-', 63 at most")
    return given


TableName = Annotated[str, ScalarKind("name of a table", _table_name, quoted=True)]


class BalancerDataplaneSettings(Section, frozen=True, kw_only=True):
    """Dataplane of the balancer."""

    kind: Annotated[
        Literal["nftables", "vpp", "dry-run"],
        FieldDoc(
            "The dataplane: `nftables` programs the kernel, `vpp` the lb plugin of a VPP, `dry-run` only logs what it "
            "would do."
        ),
    ] = "nftables"
    table: Annotated[
        TableName,
        FieldDoc(
            "nftables: name of Holdfast's table of family `inet`. Holdfast owns everything in it and nothing outside "
            "it. A new name creates a new table; the old one stays until an operator deletes it."
        ),
    ] = "holdfast"
    counters: Annotated[
        Literal["flows", "packets"],
        FieldDoc(
            "nftables: what is counted per backend: `flows` at their first packets, or every packet and byte, which "
            "costs 2 to 4 % of CPU."
        ),
    ] = "flows"
    snat: Annotated[
        bool,
        FieldDoc(
            "nftables: replace the client's address by the balancer's. Needed when replies of backends do not return "
            "through the balancer; backends no longer see the addresses of clients."
        ),
    ] = False
    vpp: VppSettings = VppSettings()


class BalancerPart(Section, frozen=True, kw_only=True):
    """The part of the balancer's configuration that may also be in files of `balancer.d/`."""

    healthchecks: Annotated[Mapping[str, HealthCheck], FieldDoc("Health checks, by name.", on_reload=True)] = {}
    backends: Annotated[Mapping[str, Backend], FieldDoc("Backends, by name.", on_reload=True)] = {}
    frontends: Annotated[Mapping[str, Frontend], FieldDoc("Frontends, by name.", on_reload=True)] = {}


class BalancerSettings(BalancerPart, frozen=True, kw_only=True):
    """Load balancer."""

    name: Annotated[Name | None, FieldDoc("Name of this balancer; `null` for the machine's host name.")] = None
    source: Annotated[
        Literal["file", "etcd"],
        FieldDoc("Source of frontends, backends and health checks: this file, or etcd."),
    ] = "file"
    reload_on_change: Annotated[
        bool,
        FieldDoc(
            "Whether a change of the file or of a file in `balancer.d/` is reloaded without being asked, once nothing "
            "has changed for a second."
        ),
    ] = False
    netns: Annotated[
        Name | None,
        FieldDoc("Network namespace to probe from; `null` for the balancer's own.", on_reload=True),
    ] = None
    probe_networks: Annotated[
        tuple[PrefixText, ...],
        FieldDoc(
            "Networks whose addresses may be probed; empty for any. Whoever writes backends and checks into etcd could "
            "otherwise make the balancer send requests to any service that it reaches. A backend elsewhere is not "
            "probed, so that its health stays unknown and it never serves."
        ),
    ] = ()
    transition_history: Annotated[
        int,
        FieldDoc(
            "Number of health transitions that are kept per backend.",
            small="the transitions of the last night are gone in the morning",
            big="every backend takes more memory",
            least=1,
            most=1_000,
        ),
    ] = 20
    sync_interval: Annotated[
        timedelta,
        FieldDoc(
            "Interval between two full comparisons with the dataplane.",
            small="reading the dataplane takes CPU time from the traffic",
            big="a foreign change of the dataplane stays for that long",
            least=timedelta(seconds=1),
            most=timedelta(hours=1),
        ),
    ] = timedelta(seconds=30)
    startup_min_delay: Annotated[
        timedelta,
        FieldDoc(
            "Warm-up: after a start, nothing is written for at least this long.",
            small="frontends are written after the first probes, before their results are reliable",
            big="a change made during the restart waits for that long",
            least=timedelta(0),
            most=timedelta(minutes=10),
        ),
    ] = timedelta(seconds=5)
    startup_max_delay: Annotated[
        timedelta,
        FieldDoc(
            "Warm-up: after this long, a frontend is written even if the health of some backends is unknown. With both "
            "delays at 0 there is no warm-up.",
            small="after every restart, backends that were not probed in time count as down",
            big="a frontend with one backend that cannot be probed gets no changes for that long",
            least=timedelta(0),
            most=timedelta(hours=1),
        ),
    ] = timedelta(seconds=30)
    dataplane: BalancerDataplaneSettings = BalancerDataplaneSettings()

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.startup_min_delay > self.startup_max_delay:
            yield FieldConflict(
                ("startup_min_delay", "startup_max_delay"),
                f"must not be longer than balancer.startup_max_delay ({show_duration(self.startup_max_delay)})",
            )
        yield from self._unknown_checks()
        yield from self._unprobed_backends()
        yield from self._portless_checks()
        for name, frontend in self.frontends.items():
            yield from self._member_conflicts(name, frontend)
        yield from self._duplicate_frontends()
        yield from self._announced_dry_runs()
        if self.dataplane.kind == "vpp":
            yield from limits(self.frontends, self.backends, self.dataplane.vpp.table_length)
        else:
            yield from self._encapsulated()
        if self.source == "file":
            yield from self._only_with_etcd()

    def warnings(self) -> Iterator[FieldConflict]:
        if self.dataplane.kind == "vpp":
            yield from hashed_alike(self.frontends, self.backends)

    def _unknown_checks(self) -> Iterator[FieldConflict]:
        for name, backend in self.backends.items():
            for check in backend.healthcheck:
                if check not in self.healthchecks:
                    sentence = (
                        f"names the check {check!r}, which is not in healthchecks{closest(check, self.healthchecks)}"
                    )
                    yield FieldConflict((f"backends.{name}.healthcheck", "healthchecks"), sentence)

    def _unprobed_backends(self) -> Iterator[FieldConflict]:
        for name, backend in self.backends.items():
            if backend.healthcheck and backend.address is not None and not within(backend.address, self.probe_networks):
                sentence = f"is {backend.address}, which may not be probed: add its network to balancer.probe_networks"
                yield FieldConflict((f"backends.{name}.address", "probe_networks"), sentence)

    def _portless_checks(self) -> Iterator[FieldConflict]:
        for name, backend in self.backends.items():
            checks = [(check, self.healthchecks[check]) for check in backend.healthcheck if check in self.healthchecks]
            for check, how in checks:
                if how.type != "icmp" and how.port is None and not backend.port:
                    sentence = f"names the check {check!r}, which has no port, and neither has the backend: give it one"
                    yield FieldConflict((f"backends.{name}.healthcheck", "healthchecks"), sentence)

    def _member_conflicts(self, name: str, frontend: Frontend) -> Iterator[FieldConflict]:
        addresses: dict[tuple[str, int], str] = {}
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
            own = backend.address, backend.port
            if addresses.setdefault(own, backend_name) != backend_name:
                sentence = (
                    f"has the address and port of {addresses[own]}, which is in this frontend already: remove one"
                )
                yield FieldConflict((place, "backends"), sentence)

    def _duplicate_frontends(self) -> Iterator[FieldConflict]:
        claims: dict[tuple[str, str, int], str] = {}
        for name, frontend in self.frontends.items():
            claim = frontend.address, frontend.protocol, frontend.port
            if claims.setdefault(claim, name) != name:
                sentence = f"has the address, protocol and port of frontend {claims[claim]}: remove one"
                yield FieldConflict((f"frontends.{name}.address",), sentence)

    def _announced_dry_runs(self) -> Iterator[FieldConflict]:
        for name, frontend in self.frontends.items():
            if frontend.announce is not None and self.dataplane.kind == "dry-run":
                sentence = "would attract traffic that a dry-run dataplane drops: remove it"
                yield FieldConflict((f"frontends.{name}.announce", "dataplane.kind"), sentence)

    def _encapsulated(self) -> Iterator[FieldConflict]:
        for name, frontend in self.frontends.items():
            if frontend.encapsulation is not None:
                sentence = "is for balancer.dataplane.kind: vpp; other dataplanes rewrite addresses: remove it"
                yield FieldConflict((f"frontends.{name}.encapsulation", "dataplane.kind"), sentence)

    def _only_with_etcd(self) -> Iterator[FieldConflict]:
        for name, backend in self.backends.items():
            for field in ("endpoint", "host"):
                if getattr(backend, field) is not None:
                    yield FieldConflict((f"backends.{name}.{field}", "source"), "needs balancer.source: etcd")
