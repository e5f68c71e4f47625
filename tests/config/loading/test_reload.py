"""Reload: only fields that say so take effect in a running daemon, and the answer says which (C46)."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.config.loading.reload import FieldChange, Reload, compare, mixture_problems
from holdfast.config.loading.resolve import VALUES, ConfigFile, Loaded, resolve
from holdfast.config.output.reference import reference
from holdfast.config.root import Config
from holdfast.config.schema.field import seconds
from holdfast.config.sections.log import LogSettings
from holdfast.config.sections.server import ServerSettings
from holdfast.testing.fault import fault

RUNNING = Config()


def loaded(text: str) -> Config:
    result = resolve(ConfigFile("f.yaml", text.encode()), {})
    assert isinstance(result, Loaded), result
    return result.config


@fault(
    "C46",
    without="holdfast.config.loading.reload:takes_effect",
    returns=True,
    sees=(AssertionError, r'\[change.path for change in result.applied\] == \["log.level"\]'),
)
def test_C46_a_reload_never_mixes_new_timings_with_those_that_the_elector_runs_with() -> None:
    quick = ServerSettings(
        ttl=seconds(2), renew_every=seconds(0.2), renew_deadline=seconds(1), rpc_timeout=seconds(0.5)
    )
    new = Config(server=quick, log=LogSettings(level="debug"))
    merged, result = compare(RUNNING, new, "server")
    assert [change.path for change in result.applied] == ["log.level"], "said to be in force and is not"
    assert result.needs_restart[0] == FieldChange("server.ttl", "15s", "2s")
    assert merged == msgspec.structs.replace(RUNNING, log=new.log)


def test_an_unchanged_configuration_changes_nothing() -> None:
    assert compare(RUNNING, Config(), "server") == (RUNNING, Reload(unchanged=len(VALUES) + 3))


def test_fields_of_another_daemon_are_neither_applied_nor_waiting_for_a_restart() -> None:
    new = loaded("agent:\n  report_interval: 7s\nserver:\n  renew_every: 3s\n")
    merged, result = compare(RUNNING, new, "server")
    assert [change.path for change in result.ignored] == ["agent.report_interval"]
    assert [change.path for change in result.needs_restart] == ["server.renew_every"]
    assert merged == RUNNING
    assert [change.path for change in compare(RUNNING, new, "agent")[1].needs_restart] == ["agent.report_interval"]


def test_members_of_a_group_are_listed_one_by_one() -> None:
    one = "balancer:\n  backends:\n    a: {address: 192.0.2.1}\n"
    two = "balancer:\n  backends:\n    a: {address: 192.0.2.2}\n    b: {address: 192.0.2.3}\n"
    merged, result = compare(loaded(one), loaded(two), "balancer")
    assert [str(change) for change in result.applied] == [
        'balancer.backends.a: {"address":"192.0.2.1"} → {"address":"192.0.2.2"}',
        'balancer.backends.b: none → {"address":"192.0.2.3"}',
    ]
    assert merged == loaded(two)


def test_new_values_that_do_not_fit_running_ones_are_refused() -> None:
    """The new file is valid as a whole, but only a part of it would take effect."""
    head, backends = "balancer:\n  dataplane: {kind: nftables}\n", "  backends: {a: {address: 192.0.2.1}}\n"
    announced = "  frontends:\n    f: {address: 198.51.100.1, port: 80, protocol: tcp, announce: {device: lo}}\n"
    running = loaded("balancer:\n  dataplane: {kind: dry-run}\n" + backends)
    merged, result = compare(running, loaded(head + backends + announced), "balancer")
    assert [change.path for change in result.needs_restart] == ["balancer.dataplane.kind"]
    assert mixture_problems(merged).startswith(
        "balancer.frontends.f.announce: would attract traffic that a dry-run dataplane drops: remove it; together"
    )


def test_a_ttl_that_does_not_fit_the_renewals_is_refused_with_the_sentence() -> None:
    refused = str(resolve(ConfigFile("f.yaml", b"server:\n  ttl: 8s\n"), {}))
    assert "server.ttl: must be longer than server.renew_deadline (10s)" in refused


@pytest.mark.parametrize("name", VALUES)
def test_the_reference_says_for_every_field_whether_a_reload_applies_it(name: str) -> None:
    entry = reference().partition(f"### `{name}`\n")[2].partition("\n#")[0]
    says = "applied." if VALUES[name].doc.on_reload else "needs a restart of the daemon."
    assert f"- **Reload:** {says}" in entry
