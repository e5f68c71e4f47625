"""Identity under which an agent reports, and how it tells another agent of the same name. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.fleet.agent_report import AgentReport


@dataclass(frozen=True, slots=True)
class ReportingHost:
    region: Region
    name: str
    boot_id: str
    instance: str = ""

    def is_sender(self, report: AgentReport) -> bool:
        """Return whether that report is of this agent, or of an earlier run of it."""
        is_same = not report.instance or not self.instance or report.instance == self.instance
        return self.is_machine_of(report) and is_same

    def is_machine_of(self, report: AgentReport) -> bool:
        """Return whether that report was written on this boot of this machine."""
        return report.boot_id == self.boot_id

    def other_here(self, report: AgentReport | Bad) -> str:
        """Describe another agent of this machine that wrote that report; empty if it is not of one."""
        if isinstance(report, Bad) or self.is_sender(report) or not self.is_machine_of(report):
            return ""
        return self.conflict("on this machine")

    def conflict(self, where: str) -> str:
        return f"another agent reports as {self.name} ({where}): give one of the two another agent.host"
