"""The command that neutron-periodic-workers becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config import ConfigRejected, Loaded
from holdfast.openstack.own_config import own_config
from holdfast.openstack.server_command import CalicoOptions, calico_options, server_command


def test_the_options_of_networking_calico_are_understood() -> None:
    options = CalicoOptions(("http://10.0.0.1:2379",), region="ams", ca_file="/ca.pem")

    command = server_command("/python", options, ["/etc/neutron/neutron.conf"])

    assert command[:4] == ["/python", "-m", "holdfast.cli", "server"]
    assert set(command[4:]) == {
        "--set=store.endpoints=http://10.0.0.1:2379",
        "--set=store.region=ams",
        "--set=store.ca_file=/ca.pem",
        "--set=inventory.database=neutron",
        "--set=inventory.neutron_config=/etc/neutron/neutron.conf",
    }


def test_a_configuration_file_wins_over_them() -> None:
    options = CalicoOptions(("http://10.0.0.1:2379",), config="/etc/holdfast/server.yaml")

    command = server_command("/python", options, ["/neutron.conf"])

    assert command[4:6] == ["--config", "/etc/holdfast/server.yaml"]
    assert not any("store.endpoints" in word for word in command)


def test_files_of_a_folder_come_after_named_files(tmp_path: Path) -> None:
    for name in ("b.conf", "a.conf", "notes.txt"):
        tmp_path.joinpath(name).touch()

    command = server_command("/python", CalicoOptions(()), ["/neutron.conf"], [str(tmp_path)])

    assert command[-1] == f"--set=inventory.neutron_config=/neutron.conf,{tmp_path}/a.conf,{tmp_path}/b.conf"


def test_a_user_of_etcd_without_a_file_for_the_password_is_refused(tmp_path: Path) -> None:
    given = {
        "etcd_host": "10.0.0.1",
        "etcd_key_file": "/key.pem",
        "etcd_cert_file": "/cert.pem",
        "etcd_username": "neutron",
    }
    password = tmp_path / "password"

    refused = own_config(calico_options(given.get), ["/etc/neutron/neutron.conf"])
    accepted = own_config(calico_options({**given, "etcd_password_file": str(password)}.get), ["/neutron.conf"])

    assert isinstance(refused, ConfigRejected)
    assert "store.user: needs store.password_file as well" in str(refused)
    assert isinstance(accepted, Loaded)
    assert (accepted.config.store.user, accepted.config.store.password_file) == ("neutron", str(password))


@pytest.mark.parametrize("option", ["etcd_ca_cert_file", "etcd_cert_file", "etcd_key_file"])
def test_any_certificate_means_tls_as_in_networking_calico(option: str) -> None:
    given = {"etcd_host": "10.0.0.1", option: "/etc/calico/file.pem"}

    assert calico_options(given.get).endpoints == ("https://10.0.0.1:2379",)
    assert calico_options({"etcd_host": "10.0.0.1"}.get).endpoints == ("http://10.0.0.1:2379",)
