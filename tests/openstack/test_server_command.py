"""The command that neutron-periodic-workers becomes."""

from __future__ import annotations

from pathlib import Path

from holdfast.openstack.server_command import CalicoOptions, server_command


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
