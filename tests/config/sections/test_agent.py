"""The agent section: conflicts between its settings."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.config.sections.agent import AgentDataplaneSettings, AgentSettings


@pytest.mark.parametrize(
    ("agent", "blamed", "part"),
    [
        (AgentSettings(report_ttl=timedelta(seconds=45)), "report_ttl", "at least twice agent.report_interval (30s)"),
        (AgentSettings(report_ttl=timedelta(seconds=90.5)), "report_ttl", "whole seconds"),
        (
            AgentSettings(dataplane=AgentDataplaneSettings(file="/tmp/kernel")),
            "dataplane.file",
            "agent.dataplane.kind: memory only",
        ),
    ],
)
def test_contradicting_settings_are_refused(agent: AgentSettings, blamed: str, part: str) -> None:
    (conflict,) = agent.conflicts()
    assert conflict.fields[0] == blamed
    assert part in conflict.sentence


def test_the_defaults_have_no_conflicts() -> None:
    assert list(AgentSettings().conflicts()) == []
