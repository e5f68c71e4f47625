"""Prefixes that the inventory refuses because they would cut hosts off."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import Engine

from holdfast.cli.change.inventory import prefix_rules
from holdfast.config import Config
from holdfast.inventory.changes import EditRefused, WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.edit.rules import PrefixRules
from holdfast.model.calico.endpoint import Endpoint
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.model.fleet.network import NETWORK, Network
from holdfast.model.fleet.prefix_policy import parsed
from holdfast.testing.fault import fault
from tests.inventory.harness import REGION, endpoint

STORE = "10.28.0.5"


def host_at(name: str, address: str) -> WantedObject:
    made = Host.of(name, HostSpec(bgp=Bgp(ipv4_address=address)))
    return wanted(HOST, REGION, name, made)


@pytest.fixture
def strict(engine: Engine) -> Editor:
    return Editor(engine, REGION, prefixes=PrefixRules(frozenset([STORE])))


@pytest.mark.parametrize("prefix", ["0.0.0.0/0", "127.0.0.1/32", "169.254.1.1/32", f"{STORE}/32", "192.0.2.0/24"])
@fault(
    "N21",
    without="holdfast.inventory.edit.rules:harmful_prefixes",
    returns=[],
    sees=(pytest.fail.Exception, "DID NOT RAISE EditRefused"),
)
def test_N21_an_endpoint_that_would_cut_hosts_off_is_refused_and_nothing_is_changed(
    strict: Editor, prefix: str
) -> None:
    strict.change([host_at("r1", "192.0.2.1/24")], who="alice")
    with pytest.raises(EditRefused, match=f"endpoint holdfast-w7-eth0 cannot have {prefix}: it "):
        strict.change([endpoint(7, address=prefix), endpoint(8)], who="alice")
    with pytest.raises(EditRefused, match="nothing to undo"):
        strict.undo(endpoint(8).kind, "holdfast-w8-eth0", who="alice")


@pytest.mark.parametrize("device", ["lo", "holdfast4"])
def test_an_endpoint_with_a_device_of_every_host_as_its_interface_is_refused(engine: Engine, device: str) -> None:
    editor = Editor(engine, REGION, prefixes=prefix_rules(Config()))
    made = endpoint(7)
    assert isinstance(made.thing, Endpoint)
    spec = msgspec.structs.replace(made.thing.spec, interface_name=device)
    wrong = msgspec.structs.replace(made, thing=msgspec.structs.replace(made.thing, spec=spec))
    with pytest.raises(EditRefused, match=f"cannot have the interface {device}, which every host has for itself"):
        editor.change([wrong], who="alice")
    editor.change([made], who="alice")


def test_a_host_whose_address_an_endpoint_covers_is_refused(strict: Editor) -> None:
    strict.change([host_at("r1", "192.0.2.1/24"), endpoint(7, address="198.51.100.0/24")], who="alice")
    with pytest.raises(EditRefused, match=r"198\.51\.100\.0/24, and it covers 198\.51\.100\.9, an address of host r2"):
        strict.change([host_at("r2", "198.51.100.9/24")], who="alice")
    moved = msgspec.structs.replace(endpoint(7, address="198.51.101.0/24"))
    strict.change([host_at("r2", "198.51.100.9/24"), moved], who="alice")


def test_a_network_may_contain_the_store_but_be_no_default_route(strict: Editor) -> None:
    strict.change([wanted(NETWORK, REGION, "red", Network(prefixes=("10.28.0.0/16",)))], who="alice")
    with pytest.raises(EditRefused, match="network all cannot have ::/0: it is a default route"):
        strict.change([wanted(NETWORK, REGION, "all", Network(prefixes=("::/0",)))], who="alice")


def test_a_prefix_that_is_allowed_exactly_may_be_the_stores(engine: Engine) -> None:
    rules = PrefixRules(frozenset([STORE]), frozenset([parsed(f"{STORE}/32")]))
    editor = Editor(engine, REGION, prefixes=rules)
    editor.change([host_at("r1", "192.0.2.1/24"), endpoint(7, address=f"{STORE}/32")], who="alice")
