"""`holdfast openstack` as an operator runs it, on a Neutron database without a Neutron, and a real etcd."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import openstack as command
from holdfast.inventory.sql.engine import database_url, open_engine
from holdfast.model.base.region import Region
from holdfast.openstack import check as check_module
from holdfast.openstack import tables as t
from holdfast.openstack.inventory import NeutronInventory
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.testing.fakes.neutron import NeutronDatabase
from holdfast.testing.real.etcd import EtcdCluster


class Backend:
    """The inventory that `holdfast.openstack.backend` opens where Neutron is installed."""

    def __init__(self, database: NeutronDatabase, region: Region) -> None:
        self._inventory = NeutronInventory(database.engine, TranslationSettings(region=region))

    def inventory(self) -> NeutronInventory:
        return self._inventory

    def close(self) -> None:
        return


class Site:
    """neutron.conf with the options of networking-calico, and one port that etcd lacks."""

    def __init__(self, folder: Path, etcd: EtcdCluster, database: NeutronDatabase) -> None:
        self.config = folder / "neutron.conf"
        host, _, port = etcd.endpoints[0].removeprefix("http://").partition(":")
        region = f"r{uuid.uuid4().hex[:8]}"
        self.config.write_text(
            "[DEFAULT]\ncore_plugin = ml2\n"
            f"[calico]\netcd_host = {host}\netcd_port = {port}\nopenstack_region = {region}\n"
        )
        self.runtime = folder / "run"
        self.database = database
        network = database.network()
        self.port = database.port(network, database.subnet(network, enable_dhcp=False), "10.28.0.7")

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(command.openstack, [*words, "--neutron-config", str(self.config)])


@pytest.fixture
def site(one_etcd: EtcdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(check_module, "_AGAIN_S", 0.0)
    database = NeutronDatabase(open_engine(database_url(f"sqlite:///{tmp_path}/neutron.db")))
    monkeypatch.setattr(command, "open_backend", lambda _config, region: Backend(database, region))
    yield Site(tmp_path, one_etcd, database)
    database.engine.dispose()


def objects(result: Result) -> Sequence[dict[str, Any]]:
    found: Sequence[dict[str, Any]] = json.loads(result.stdout)["objects"]
    return found


def test_check_needs_only_neutron_s_files_and_no_server(site: Site) -> None:
    result = site.run("check", "--port", site.port, "-o", "json")

    assert result.exit_code == 1
    assert [(one["op"], one["group"]) for one in objects(result)] == [("create", "drift")]
    assert site.port.replace("-", "--") in objects(result)[0]["key"]


def test_check_ends_with_0_where_nothing_differs(site: Site) -> None:
    result = site.run("check", "--port", str(uuid.uuid4()))

    assert result.exit_code == 0
    assert "in sync" in result.stderr


def test_check_ends_with_1_for_a_row_without_a_form_in_calico(site: Site) -> None:
    group = site.database.group()
    rule = {"id": "r1", "security_group_id": group, "direction": "ingress", "ethertype": "IPv4"}
    site.database.insert(t.RULES, **rule, protocol="udplite", port_range_min=1, port_range_max=2)

    result = site.run("check", "--port", str(uuid.uuid4()))

    assert result.exit_code == 1
    assert "in sync" in result.stderr
    assert "not expressible in Calico, left out: " in result.stderr


def test_two_scopes_are_refused(site: Site) -> None:
    result = site.run("check", "--port", "a", "--network", "b")

    assert result.exit_code == 2
    assert "give one of --network" in result.stderr


def test_resync_without_a_server_changes_nothing_and_names_what_to_do(site: Site) -> None:
    result = site.run("resync", "--port", site.port, "--runtime", str(site.runtime))

    assert result.exit_code == 3
    assert "1 differ, and nothing was repaired" in result.stderr
    assert "neutron-periodic-workers" in result.stderr
    assert site.run("check", "--port", site.port).exit_code == 1


def test_an_etcd_that_is_away_is_not_mistaken_for_a_difference(site: Site) -> None:
    site.config.write_text("[calico]\netcd_host = 127.0.0.1\netcd_port = 1\n")

    result = site.run("check")

    assert result.exit_code == 3
    assert "127.0.0.1:1" in result.stderr
