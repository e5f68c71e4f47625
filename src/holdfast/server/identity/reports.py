"""Verdicts that agents and balancers report about the store.

A daemon remembers the store on its own disk, so one of them may notice a restore that the leader cannot know: its
server is new, or its memory was lost. An operator ends such a verdict with the same command as the leader's.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.base.bad import Bad
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.fleet.agent_report import AGENT_REPORT, AgentReport
from holdfast.model.fleet.balancer_report import BALANCER_REPORT, BalancerReport
from holdfast.store.api import Store
from holdfast.store.identity import StoreVerdict

_NAMED = 3


@dataclass(frozen=True, slots=True)
class RestoreReports:
    """Agents and balancers that report `store_restored`, by name."""

    agents: tuple[str, ...] = ()
    balancers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.agents or self.balancers)

    @property
    def sentence(self) -> str:
        """One sentence with their number and the first names."""
        groups = [_group(self.agents, "agent"), _group(self.balancers, "balancer")]
        shown = " and ".join(filter(None, groups)) or "no agent or balancer"
        one = len(self.agents) + len(self.balancers) <= 1
        return f"{shown} {'reports' if one else 'report'} {StoreVerdict.RESTORED.value}"


async def read_restore_reports(store: Store, region: Region) -> RestoreReports:
    """Read the reports of all agents and balancers. Raises `StoreAway` or `StoreError`."""
    agents = await _reporting(store, region, AGENT_REPORT)
    return RestoreReports(agents, await _reporting(store, region, BALANCER_REPORT))


async def _reporting(
    store: Store, region: Region, kind: Kind[AgentReport, str] | Kind[BalancerReport, str]
) -> tuple[str, ...]:
    found: list[str] = []
    async for page in store.list(kind.prefix(region)):
        for entry in page.entries:
            name, report = kind.parse(entry.key, region), kind.decode(entry.key, entry.value)
            if isinstance(name, Bad) or isinstance(report, Bad):
                continue  # no evidence
            if report.store_verdict == StoreVerdict.RESTORED.value:
                found.append(name)
    return tuple(found)


def _group(names: tuple[str, ...], kind: str) -> str:
    if not names:
        return ""
    more = ", …" if len(names) > _NAMED else ""
    return f"{len(names):,} {kind}{'s' * (len(names) > 1)} ({', '.join(names[:_NAMED])}{more})"
