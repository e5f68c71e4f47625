"""The agent of one host: whose host it is, what it programs, how often it reports, and how careful it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from holdfast.config.schema.field import FieldConflict, FieldDoc, File, Name, Section
from holdfast.config.schema.scalars import show_duration
from holdfast.config.sections.linux import LinuxSettings


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


class AgentDataplaneSettings(Section, frozen=True, kw_only=True):
    """What the agent programs."""

    kind: Annotated[
        Literal["linux", "memory"],
        FieldDoc("Which dataplane: `linux` is this network namespace's kernel, `memory` a file, to try things out."),
    ] = "linux"
    netns: Annotated[
        Name | None,
        FieldDoc(
            "The network namespace whose kernel `linux` programs, as `ip netns` names it; `null` for the agent's own."
        ),
    ] = None
    file: Annotated[
        File | None,
        FieldDoc("Where `memory` keeps what it holds; `null` for `agent.kernel.json` in the runtime folder."),
    ] = None


class AgentSettings(Section, frozen=True, kw_only=True):
    """The agent."""

    host: Annotated[
        Name | None,
        FieldDoc("The name that the inventory has for this host; `null` takes the machine's host name."),
    ] = None
    dataplane: AgentDataplaneSettings = AgentDataplaneSettings()
    linux: LinuxSettings = LinuxSettings()
    encapsulation: Annotated[
        Literal["always", "cross-subnet", "never"],
        FieldDoc(
            "When packets to another host go through the VXLAN tunnel: `cross-subnet` sends them directly where both "
            "hosts share a segment."
        ),
    ] = "cross-subnet"
    report_interval: Annotated[
        timedelta,
        FieldDoc(
            "How often the agent says that it lives.",
            small="with thousands of hosts the store does little else",
            big="the fleet's picture of this host is that old",
            least=_seconds(1),
            most=_seconds(600),
        ),
    ] = _seconds(30)
    report_ttl: Annotated[
        timedelta,
        FieldDoc(
            "How long the host counts as alive after its last report; whole seconds.",
            small="a restart of the agent, or of the store, looks like the death of the host",
            big="a dead host looks alive for that long",
            least=_seconds(3),
            most=_seconds(3_600),
        ),
    ] = _seconds(90)
    silent_after: Annotated[
        timedelta,
        FieldDoc(
            "The reporter stops saying that the host lives when the worker of the dataplane has not answered for this "
            "long.",
            small="a restart of that worker on a busy machine looks like the death of the host",
            big="a host whose dataplane nobody tends looks alive for that long, and `report_ttl` on top",
            least=_seconds(5),
            most=_seconds(3_600),
        ),
    ] = _seconds(30)
    verify_interval: Annotated[
        timedelta,
        FieldDoc(
            "Between two full comparisons with the dataplane; what the kernel announces is looked at at once.",
            small="the kernel is read more than it is used",
            big="a change behind our back that the kernel did not announce stays for that long",
            least=_seconds(1),
            most=_seconds(86_400),
        ),
    ] = _seconds(300)
    hold_down: Annotated[
        timedelta,
        FieldDoc(
            "How long a delete waits that would cut our own way to the store.",
            small="a wrong delete cuts the agent off before anybody can take it back",
            big="what a dead host on that way occupied stays for that long",
            least=_seconds(0),
            most=_seconds(86_400),
        ),
    ] = _seconds(60)
    brake_count: Annotated[
        int,
        FieldDoc(
            "The brake holds the deletes of one sort when more than this many, and more than `brake_share`, would go "
            "within a minute.",
            small="everyday changes need an operator",
            big="on a small fleet a broken source empties the host",
            least=1,
            most=1_000_000,
        ),
    ] = 20
    brake_share: Annotated[
        int,
        FieldDoc(
            "Per cent of one sort; see `brake_count`.",
            small="everyday changes need an operator",
            big="a broken source empties much of the host",
            least=1,
            most=100,
        ),
    ] = 10

    def conflicts(self) -> Iterator[FieldConflict]:
        if self.report_ttl < 2 * self.report_interval:
            yield FieldConflict(
                ("report_ttl", "report_interval"),
                f"must be at least twice agent.report_interval ({show_duration(self.report_interval)}): one lost "
                "report would be the death of the host",
            )
        if self.report_ttl.microseconds:
            yield FieldConflict(("report_ttl",), "must be whole seconds: etcd knows no others")
        if self.dataplane.netns is not None and self.dataplane.kind != "linux":
            yield FieldConflict(("dataplane.netns", "dataplane.kind"), "is for agent.dataplane.kind: linux only")
        if self.dataplane.file is not None and self.dataplane.kind != "memory":
            yield FieldConflict(("dataplane.file", "dataplane.kind"), "is for agent.dataplane.kind: memory only")
