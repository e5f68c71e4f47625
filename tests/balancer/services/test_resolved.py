"""Services from a file and from the store."""

from __future__ import annotations

from holdfast.balancer.services import from_store as catalog
from holdfast.balancer.services.distinct import indistinct
from holdfast.balancer.services.from_store import FleetAddresses, StoreItem
from holdfast.balancer.services.resolved import Locate, resolve_services
from holdfast.balancer.vip import as_wanted, shown
from holdfast.config import ConfigFile, Loaded, resolve
from holdfast.config.sections.balancer import BalancerDataplaneSettings, BalancerSettings
from holdfast.config.sections.frontend import Announce, Backend, Frontend, Pool, PoolMember
from holdfast.model.balancing import FRONTEND
from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from holdfast.model.calico.host import Bgp, Host, HostSpec
from holdfast.testing.fakes.weight_dataplane import FakeWeightDataplane
from holdfast.testing.fault import fault
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


def every_family_or_none(one: Backend, families: set[int], locate: Locate) -> list[tuple[int, str]]:
    """B34 as it was: the IPv4 address if there is one."""
    return [(version, address) for version in (4, 6) if (address := locate(one, version))][:1]


@fault(
    "B34",
    without="holdfast.balancer.services.resolved:_addresses",
    by=f"{__name__}:every_family_or_none",
    sees=(AssertionError, r'served == \{"four": \["10.9.0.1:80"\]'),
)
def test_B34_a_frontend_is_served_by_the_addresses_of_its_family() -> None:
    host = Host.of("r1", HostSpec(bgp=Bgp("10.9.0.1/24", "fd00::1/64")))
    pool = Pool(backends={"web": PoolMember()})
    config = BalancerSettings(
        source="etcd",
        backends={"web": Backend(host="r1", port=80)},
        frontends={
            "four": Frontend(address="192.0.2.1", port=80, pools=(pool,)),
            "six": Frontend(address="2001:db8::1", port=80, pools=(pool,)),
        },
    )
    services = resolve_services(config, FleetAddresses(hosts={"r1": host}).locate)
    served = {
        name: [shown(services.backends[each].identity) for each in one.backends()]
        for name, one in services.frontends.items()
    }
    assert served == {"four": ["10.9.0.1:80"], "six": ["[fd00::1]:80"]}
    assert {one.configured for one in services.backends.values()} == {"web"}


def test_the_same_address_twice_in_a_frontend_is_served_once_and_named() -> None:
    host = Host.of("r1", HostSpec(bgp=Bgp("10.9.0.1/24")))
    config = BalancerSettings(
        source="etcd",
        backends={"a": Backend(host="r1", port=80), "b": Backend(address="10.9.0.1", port=80)},
        frontends={
            "www": Frontend(
                address="192.0.2.1",
                port=80,
                pools=(Pool(backends={"a": PoolMember()}), Pool(backends={"b": PoolMember()})),
            )
        },
    )
    services = resolve_services(config, FleetAddresses(hosts={"r1": host}).locate)
    assert services.frontends["www"].pools == ((("a", 100),), ())
    assert services.missing == {
        "backend b of frontend www": ("it has the address and port of a, which is in this frontend already: remove one")
    }


def test_what_vpp_cannot_have_together_is_left_out_and_named() -> None:
    pool = Pool(backends={"a": PoolMember(), "b": PoolMember(), "c": PoolMember()})
    config = BalancerSettings(
        source="etcd",
        dataplane=BalancerDataplaneSettings(kind="vpp"),
        backends={
            "a": Backend(address="10.0.0.1"),
            "b": Backend(address="10.0.0.1", port=80),
            "c": Backend(address="10.0.0.3", port=8080),
        },
        frontends={
            "www": Frontend(address="192.0.2.1", port=80, pools=(pool,)),
            "zzz": Frontend(address="192.0.2.1", protocol="any", pools=(pool,)),
        },
    )
    services = resolve_services(config)
    assert {name: one.pools for name, one in services.frontends.items()} == {"www": ((("a", 100),),)}
    assert services.missing == {
        "backend b of frontend www": "has the address of a, and VPP does not tell ports apart: remove one",
        "backend c of frontend www": "has port 8080, and VPP keeps the port of the frontend (80): write port: 0",
        "frontend zzz": "has the address of frontend www, and VPP gives all ports of an address to one of the two",
    }


def test_backends_that_are_one_in_the_dataplane_are_refused_with_their_frontend() -> None:
    text = """\
balancer:
  backends: {a: {address: 10.0.0.1, port: 80}, b: {address: 10.0.0.1, port: 81}}
  frontends:
    www: {address: 192.0.2.1, port: 80, pools: [{backends: {a: , b: }}]}
"""
    loaded = resolve(ConfigFile("f", text.encode()), {})
    assert isinstance(loaded, Loaded)
    assert indistinct(loaded, as_wanted) is None
    assert str(indistinct(loaded, FakeWeightDataplane().canonical)) == (
        "f:4:5: balancer.frontends.www: has the backends a and b, which are one in the dataplane nftables: remove one"
    )
