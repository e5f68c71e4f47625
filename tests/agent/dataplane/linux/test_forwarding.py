"""IPv6 forwarding on a kernel that has no setting per device, and settings that may not be written."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest

from holdfast.agent.dataplane.linux import forwarding
from holdfast.agent.dataplane.linux.forwarding import Forwarding, forwarding_knobs
from holdfast.netlink.netns import inside
from holdfast.netlink.sysctls import Sysctls
from tests.agent.dataplane.linux.harness import HostHarness


def test_an_old_kernel_keeps_advertised_default_routes_and_then_forwards(
    site: HostHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "has_force_forwarding", lambda _settings: False)
    settings = inside(site.host.system_name, Sysctls)
    written: list[str] = []
    write = settings.write

    def recorded(values: Mapping[str, int]) -> None:
        written.extend(values)
        write(values)

    monkeypatch.setattr(settings, "write", recorded)
    advertised = f"ipv6/conf/{site.uplink}/accept_ra"
    try:
        assert Forwarding(settings, lambda: [site.uplink]).set(forwarding_knobs(settings, 6, "tap1")) is None
        assert written == [advertised, "ipv6/conf/all/forwarding"]
        assert settings.read(written) == {advertised: 2, "ipv6/conf/all/forwarding": 1}
        assert settings.read(["ipv4/ip_forward"]) == {"ipv4/ip_forward": 0}
    finally:
        settings.close()


def test_a_setting_that_may_not_be_written_is_said_and_the_device_is_used_all_the_same(
    site: HostHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = inside(site.host.system_name, Sysctls)

    def refused(_values: Mapping[str, int]) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(settings, "write", refused)
    found = Forwarding(settings, tuple)
    try:
        assert found.set(forwarding_knobs(settings, 4, site.uplink)) == (
            f"may not set net.ipv4.conf.{site.uplink}.forwarding=1 (Read-only file system): allow it in the agent's "
            "systemd unit, or set it by hand"
        )
        assert not found.is_on(4, site.uplink)
        found.switch_on(4, site.uplink)
        assert found.is_on(4, site.uplink)
    finally:
        settings.close()
