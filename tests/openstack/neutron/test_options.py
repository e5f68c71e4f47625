"""Options of section `[calico]`, as Neutron's own tools see them."""

from __future__ import annotations

import re

import pytest

from holdfast.openstack.translate.settings import settings_of
from holdfast.testing.real.neutron import NeutronFleet
from tests.openstack.translate.test_settings import AMS

_GENERATE = "from oslo_config.generator import main; main(['--namespace', 'holdfast'])"


def test_the_generated_sample_has_every_option_with_the_default_that_the_server_uses(fleet: NeutronFleet) -> None:
    printed = fleet.python(_GENERATE)

    generated = dict(re.findall(r"^#(\w+) = ?(.*)$", printed, flags=re.MULTILINE))
    assert "[calico]" in printed.splitlines()
    assert {"etcd_host", "endpoints", "openstack_region", "holdfast_config", "source_prefixes"} <= generated.keys()
    assert settings_of(AMS, {"calico": generated}) == settings_of(AMS, {})


def test_neutron_refuses_a_limit_that_is_no_number(fleet: NeutronFleet) -> None:
    wrong = fleet.home / "wrong.conf"
    wrong.write_text("[calico]\negress_burst_bits = many\n")
    read = (
        "import sys; from oslo_config import cfg; import holdfast.openstack.mech; "
        "cfg.CONF(['--config-file', sys.argv[1]]); cfg.CONF.calico.egress_burst_bits"
    )

    with pytest.raises(RuntimeError, match="egress_burst_bits"):
        fleet.python(read, str(wrong))
