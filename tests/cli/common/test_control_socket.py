"""Names of workers, resolved to one worker."""

from __future__ import annotations

import click
import pytest

from holdfast.cli.common.control_socket import resolve


def test_the_name_of_a_daemon_means_its_main_worker() -> None:
    assert resolve("server", ["elector", "syncer"]) == "elector"
    assert resolve("syncer", ["elector", "syncer"]) == "syncer"


def test_a_name_of_several_workers_is_ambiguous() -> None:
    lab = ["ctl-1/elector", "ctl-2/elector", "routes"]
    with pytest.raises(click.ClickException) as refused:
        resolve("server", lab)
    assert refused.value.message == "server is ambiguous here: name one of ctl-1/elector, ctl-2/elector"
    assert resolve("ctl-2/elector", lab) == "ctl-2/elector"
    assert resolve("server", ["ctl-1/elector", "routes"]) == "ctl-1/elector"


def test_a_name_of_one_worker_needs_no_daemon() -> None:
    assert resolve("vips", ["ctl-1/elector", "lb-1/vips"]) == "lb-1/vips"
    with pytest.raises(click.ClickException, match="writer is ambiguous here: name one of ctl-1/writer, ctl-2/writer"):
        resolve("writer", ["ctl-1/writer", "ctl-2/writer"])
