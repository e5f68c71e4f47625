"""Agent: its host, its dataplane, its reports, and how it holds deletes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from holdfast.config.schema.field import FieldConflict, FieldDoc, File, Name, PrefixText, Section, seconds
from holdfast.config.schema.scalars import show_duration
from holdfast.config.sections.linux import MAIN_TABLE, LinuxSettings


class AgentDataplaneSettings(Section, frozen=True, kw_only=True):
    """Dataplane of the agent."""

    kind: Annotated[
        Literal["linux", "memory"],
        FieldDoc("The dataplane: `linux` programs the kernel, `memory` writes to a file, for trials."),
    ] = "linux"
    netns: Annotated[
        Name | None,
        FieldDoc("Network namespace that `linux` programs, as `ip netns` names it; `null` for the agent's own."),
    ] = None
    file: Annotated[
        File | None,
        FieldDoc("File of the `memory` dataplane; `null` for `agent.kernel.json` in the runtime folder."),
    ] = None


class AgentSettings(Section, frozen=True, kw_only=True):
    """Agent."""

    host: Annotated[
        Name | None,
        FieldDoc("Name of this host in the inventory; `null` for the machine's host name."),
    ] = None
    dataplane: AgentDataplaneSettings = AgentDataplaneSettings()
    linux: LinuxSettings = LinuxSettings()
    routing: Annotated[
        Literal["mesh", "bgp"],
        FieldDoc(
            "Source of the routes to endpoints of other hosts: with `mesh` the agent watches the whole fleet and "
            "programs them; with `bgp` it watches and programs the endpoints of its own host only, and a BGP daemon "
            "distributes them. The same on all hosts."
        ),
    ] = "mesh"
    encapsulation: Annotated[
        Literal["always", "cross-subnet", "never"],
        FieldDoc(
            "When packets to another host go through the VXLAN tunnel: `cross-subnet` sends them directly between "
            "hosts on the same subnet. Without effect with `routing: bgp`, which has no tunnel."
        ),
    ] = "cross-subnet"
    guard: Annotated[
        bool,
        FieldDoc(
            "Let workloads send from the addresses of their endpoints only (`ipNetworks` and `allowedIps`), and accept "
            "VXLAN packets of this fleet from known hosts only, by an nftables table of the agent's own. Needs the "
            "`nft` tool. `false` deletes that table."
        ),
    ] = True
    allowed_prefixes: Annotated[
        tuple[PrefixText, ...],
        FieldDoc(
            "Prefixes that endpoints may have although they cover an address of the store or of a host, such as that "
            "of an etcd which runs as a workload. Each is named exactly as the endpoint has it. What lies inside one "
            "of them also counts as inside the fleet's networks. "
            "`holdfast apply` honours it on the machine where it runs."
        ),
    ] = ()
    report_interval: Annotated[
        timedelta,
        FieldDoc(
            "Interval between two reports of the agent.",
            small="with thousands of hosts the reports overload the store",
            big="the status of this host is out of date for that long",
            least=seconds(1),
            most=seconds(600),
        ),
    ] = seconds(30)
    report_ttl: Annotated[
        timedelta,
        FieldDoc(
            "Lifetime of a report: the host counts as alive for this long after its last one. Whole seconds.",
            small="a restart of the agent or of the store marks the host as down",
            big="a dead host counts as alive for that long",
            least=seconds(3),
            most=seconds(3_600),
        ),
    ] = seconds(90)
    silent_after: Annotated[
        timedelta,
        FieldDoc(
            "The reporter stops reporting when the dataplane worker has not answered for this long, so that the host "
            "is marked as down.",
            small="a restart of that worker on a busy machine marks the host as down",
            big="a host without a working dataplane counts as alive for that long plus `report_ttl`",
            least=seconds(5),
            most=seconds(3_600),
        ),
    ] = seconds(30)
    verify_interval: Annotated[
        timedelta,
        FieldDoc(
            "Interval between two full comparisons with the dataplane. Changes that the kernel reports are handled at "
            "once.",
            small="reading the kernel takes CPU time from workloads",
            big="a foreign change that the kernel did not report stays for that long",
            least=seconds(1),
            most=seconds(86_400),
        ),
    ] = seconds(300)
    hold_down: Annotated[
        timedelta,
        FieldDoc(
            "Delay of a delete that would cut the agent's own path to the store.",
            small="a wrong delete cuts the agent off from the store before an operator can correct it",
            big="routes of a deleted host on that path stay for that long",
            least=seconds(0),
            most=seconds(86_400),
        ),
    ] = seconds(60)
    brake_count: Annotated[
        int,
        FieldDoc(
            "The brake holds deletes of one kind when more than this many objects, and more than `brake_share`, would "
            "be deleted within a minute.",
            small="everyday changes wait for an operator",
            big="in a small fleet, a broken source deletes everything on the host",
            least=1,
            most=1_000_000,
        ),
    ] = 20
    brake_share: Annotated[
        int,
        FieldDoc(
            "Percent of the objects of one kind; see `brake_count`.",
            small="everyday changes wait for an operator",
            big="a broken source deletes much of what is on the host",
            least=1,
            most=100,
        ),
    ] = 10

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.linux.table == MAIN_TABLE and self.routing != "bgp":
            sentence = "is the kernel's main table, which is for agent.routing: bgp only: choose another number"
            yield FieldConflict(("linux.table", "routing"), sentence)
        if self.report_ttl < 2 * self.report_interval:
            yield FieldConflict(
                ("report_ttl", "report_interval"),
                f"must be at least twice agent.report_interval ({show_duration(self.report_interval)}): else one "
                "lost report marks the host as down",
            )
        if self.report_ttl.microseconds:
            yield FieldConflict(("report_ttl",), "must be whole seconds: etcd leases have no fractions")
        if self.dataplane.netns is not None and self.dataplane.kind != "linux":
            yield FieldConflict(("dataplane.netns", "dataplane.kind"), "is for agent.dataplane.kind: linux only")
        if self.dataplane.file is not None and self.dataplane.kind != "memory":
            yield FieldConflict(("dataplane.file", "dataplane.kind"), "is for agent.dataplane.kind: memory only")
