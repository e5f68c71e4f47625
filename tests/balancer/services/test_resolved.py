"""Announce settings from a file and from the store."""

from __future__ import annotations

from holdfast.balancer.services import from_store as catalog
from holdfast.balancer.services.from_store import StoreItem
from holdfast.balancer.services.resolved import resolve_services
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.frontend import Announce, Frontend
from holdfast.model.balancing import FRONTEND
from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from tests.balancer.harness import simple

WANTED = Announce(device="anycast0", withdraw_delay=seconds(3))


def test_a_frontend_of_a_file_is_announced_as_it_says() -> None:
    config = simple(1, extra="announce: {device: anycast0, withdraw-delay: 3s}")
    assert resolve_services(config).frontends["f1"].config.announce == WANTED


def test_a_frontend_is_not_announced_unless_it_says_so() -> None:
    assert resolve_services(simple(1)).frontends["f1"].config.announce is None


def test_a_frontend_of_the_store_is_announced_as_it_says() -> None:
    region = Region("r")
    key = FRONTEND.key(region, "www")
    frontend = Frontend(address="192.0.2.1", port=80, announce=WANTED)
    item = catalog.read(region, key, FRONTEND.encode(frontend))
    assert isinstance(item, StoreItem)
    assert (
        resolve_services(catalog.configured(BalancerSettings(source="etcd"), {key: item}))
        .frontends["www"]
        .config.announce
        == WANTED
    )
