"""The agent section: conflicts between its settings."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.config import ConfigRejected
from holdfast.config.sections.agent import AgentDataplaneSettings, AgentSettings
from holdfast.config.sections.linux import MAIN_TABLE, LinuxSettings
from holdfast.runtime.config_file import load


@pytest.mark.parametrize(
    ("agent", "blamed", "part"),
    [
        (AgentSettings(report_ttl=timedelta(seconds=45)), "report_ttl", "at least twice agent.report_interval (30s)"),
        (AgentSettings(report_ttl=timedelta(seconds=90.5)), "report_ttl", "whole seconds"),
        (AgentSettings(linux=LinuxSettings(table=MAIN_TABLE)), "linux.table", "agent.routing: bgp only"),
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


def test_the_main_table_is_named_and_is_for_bgp(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.yaml"
    file.write_text("agent: {routing: bgp, linux: {table: main}}\n")
    loaded = load(str(file), {})
    assert not isinstance(loaded, ConfigRejected), str(loaded)
    assert (loaded.config.agent.routing, loaded.config.agent.linux.table) == ("bgp", MAIN_TABLE)
    file.write_text("agent: {routing: bgp, linux: {table: 255}}\n")
    assert "default or local table" in str(load(str(file), {}))


def test_the_defaults_have_no_conflicts() -> None:
    assert list(AgentSettings().conflicts()) == []
