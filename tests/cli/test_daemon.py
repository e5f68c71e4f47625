"""Which worker a person means."""

from __future__ import annotations

import click
import pytest

from holdfast.cli.common.control_socket import found


def test_a_daemon_is_named_for_the_worker_that_speaks_for_it() -> None:
    assert found("server", ["elector", "syncer"]) == "elector"
    assert found("syncer", ["elector", "syncer"]) == "syncer"


def test_of_several_servers_one_has_to_be_named() -> None:
    lab = ["ctl-1/elector", "ctl-2/elector", "routes"]
    with pytest.raises(click.ClickException) as refused:
        found("server", lab)
    assert refused.value.message == "there is more than one server here; say which: ctl-1/elector, ctl-2/elector"
    assert found("ctl-2/elector", lab) == "ctl-2/elector"
    assert found("server", ["ctl-1/elector", "routes"]) == "ctl-1/elector"


def test_a_worker_that_only_one_daemon_of_a_lab_has_need_not_be_named_with_it() -> None:
    assert found("vips", ["ctl-1/elector", "lb-1/vips"]) == "lb-1/vips"
    with pytest.raises(click.ClickException, match="more than one writer here; say which: ctl-1/writer, ctl-2/writer"):
        found("writer", ["ctl-1/writer", "ctl-2/writer"])
