"""The sample configurations beside a Neutron: accepted, and the same in the guide and in the tests on a Neutron."""

from __future__ import annotations

from configparser import ConfigParser
from pathlib import Path

from holdfast.config import ConfigRejected
from holdfast.model.base.region import configured_region
from holdfast.model.control.leader import LEADER
from holdfast.openstack.server_command import CalicoOptions, calico_options
from holdfast.runtime.config_file import load
from holdfast.testing.real import neutron

_ROOT = Path(__file__).parents[2]
SAMPLE = _ROOT / "deploy" / "examples" / "openstack.yaml"
NEUTRON_SAMPLE = _ROOT / "deploy" / "examples" / "openstack-neutron.conf"


def test_the_sample_is_accepted_and_leads_at_the_key_of_networking_calico() -> None:
    loaded = load(str(SAMPLE), {})

    assert not isinstance(loaded, ConfigRejected), str(loaded)
    assert loaded.config.inventory.is_neutron
    key = LEADER.key(configured_region(loaded.config), "leader")
    assert key == b"/calico/openstack/v2/no-region/neutron_election"


def _parsed(text: str) -> ConfigParser:
    parser = ConfigParser(default_section="", interpolation=None)
    parser.read_string(text)
    return parser


def _listed(text: str) -> set[str]:
    return set(text.split(","))


def test_the_sample_of_neutrons_options_names_the_store() -> None:
    sample = _parsed(NEUTRON_SAMPLE.read_text())

    assert calico_options(dict(sample["calico"]).get) == CalicoOptions(("http://10.0.0.10:2379",))


def test_the_guide_has_the_options_of_the_sample() -> None:
    lines = (_ROOT / "docs" / "openstack.md").read_text().splitlines()
    first = lines.index("    [DEFAULT]")
    block = [line for line in lines[first:] if line.startswith("    ") or not line]
    last = next(number for number, line in enumerate(lines[first:]) if line and not line.startswith("    "))

    assert _parsed("\n".join(line.removeprefix("    ") for line in block[:last])) == _parsed(NEUTRON_SAMPLE.read_text())


def test_the_neutron_of_the_tests_runs_with_the_options_of_the_sample() -> None:
    sample, tested = _parsed(NEUTRON_SAMPLE.read_text()), _parsed(neutron.CONFIG)

    for section in ("DEFAULT", "ml2"):
        for name, text in sample[section].items():
            assert _listed(text) <= _listed(tested[section][name]), name
