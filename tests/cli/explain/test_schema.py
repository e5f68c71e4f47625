"""`holdfast explain schema PATH` describes a field as the reference does."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from holdfast.cli import main


def told(path: str) -> str:
    result = CliRunner().invoke(main, ["explain", "schema", path])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_field_is_described_with_its_default_and_what_goes_wrong() -> None:
    lines = told("server.ttl").splitlines()
    assert lines[0] == "server.ttl"
    assert any(line.startswith("- Default: 15s") for line in lines)
    assert any(line.startswith("- Too small:") for line in lines)


@pytest.mark.parametrize("path", ["balancer.frontends.web.src-ip-sticky", "balancer.frontends.web.src_ip_sticky"])
def test_a_name_and_a_hyphen_are_understood(path: str) -> None:
    assert told(path).startswith("balancer.frontends.NAME.src_ip_sticky\n")


def test_a_section_lists_what_is_below_it() -> None:
    assert "  store.endpoints" in told("store").splitlines()


def test_a_misspelt_path_is_named_with_the_nearest() -> None:
    result = CliRunner().invoke(main, ["explain", "schema", "server.tll"])
    assert result.exit_code == 1
    assert "the configuration has no server.tll; did you mean server.ttl?" in result.stderr


def test_a_document_has_the_same_as_the_page() -> None:
    result = CliRunner().invoke(main, ["explain", "schema", "server", "-o", "json"])
    found = json.loads(result.stdout)
    assert found["path"] == "server"
    assert "server.ttl" in found["below"]
    assert found["description"]
