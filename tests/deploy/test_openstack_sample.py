"""The sample configuration beside a Neutron is accepted, and elects at networking-calico's key."""

from __future__ import annotations

from pathlib import Path

from holdfast.config import ConfigRejected
from holdfast.model.base.region import configured_region
from holdfast.model.control.leader import LEADER
from holdfast.runtime.config_file import load

SAMPLE = Path(__file__).parents[2] / "deploy" / "openstack.yaml"


def test_the_sample_is_accepted_and_leads_at_the_key_of_networking_calico() -> None:
    loaded = load(str(SAMPLE), {})

    assert not isinstance(loaded, ConfigRejected), str(loaded)
    assert loaded.config.inventory.is_neutron
    key = LEADER.key(configured_region(loaded.config), "leader")
    assert key == b"/calico/openstack/v2/no-region/neutron_election"
