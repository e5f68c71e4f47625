"""Networks: an endpoint needs an existing network that contains its addresses."""

from __future__ import annotations

import pytest

from holdfast.inventory.changes import ChangeKind, EditRefused, WantedObject, wanted
from holdfast.inventory.edit.editor import Editor
from holdfast.model.calico.endpoint import ENDPOINT, Endpoint, EndpointSpec
from holdfast.model.fleet.network import NETWORK, NETWORK_LABEL, Network
from tests.inventory.harness import REGION, endpoint_name


def network(name: str, *prefixes: str) -> WantedObject:
    return wanted(NETWORK, REGION, name, Network(prefixes=prefixes))


def on(name: str, number: int, address: str) -> WantedObject:
    spec = EndpointSpec(
        orchestrator="holdfast", workload=f"w{number}", node="r1", endpoint="eth0", ip_networks=(address,)
    )
    return wanted(ENDPOINT, REGION, spec.name, Endpoint.of(REGION, spec, labels={NETWORK_LABEL: name}))


def test_a_network_and_its_endpoints_are_applied_together(editor: Editor) -> None:
    edits = editor.change([on("red", 1, "10.28.0.7"), network("red", "10.28.0.0/16")], who="alice")
    assert [edit.did for edit in edits] == [ChangeKind.CREATED, ChangeKind.CREATED]
    (held,) = editor.objects(NETWORK)
    assert held.key == b"/holdfast/v1/no-region/networks/red"


def test_an_endpoint_on_a_missing_network_is_refused(editor: Editor) -> None:
    with pytest.raises(EditRefused, match="is on network red, which is not in the inventory"):
        editor.change([on("red", 1, "10.28.0.7")], who="alice")


def test_an_endpoint_outside_of_its_network_is_refused(editor: Editor) -> None:
    editor.change([network("red", "10.28.0.0/16", "fd5f::/64")], who="alice")
    editor.change([on("red", 1, "fd5f::7")], who="alice")
    with pytest.raises(
        EditRefused, match=r"has 10.29.0.7/32, which is not within network red \(10.28.0.0/16 fd5f::/64\)"
    ):
        editor.change([on("red", 2, "10.29.0.7")], who="alice")


def test_a_network_with_endpoints_cannot_be_deleted(editor: Editor) -> None:
    editor.change([network("red", "10.28.0.0/16"), *(on("red", n, f"10.28.0.{n}") for n in (1, 2, 3))], who="alice")
    with pytest.raises(EditRefused, match=r"network red has endpoints \(holdfast-w1-eth0 and 2 more\)"):
        editor.change([WantedObject(NETWORK, "red")], who="alice")
    everything = [WantedObject(NETWORK, "red"), *(WantedObject(ENDPOINT, endpoint_name(n)) for n in (1, 2, 3))]
    assert {edit.did for edit in editor.change(everything, who="alice")} == {ChangeKind.DELETED}


def test_a_network_is_not_narrowed_below_its_endpoints(editor: Editor) -> None:
    editor.change([network("red", "10.28.0.0/16"), on("red", 1, "10.28.9.1")], who="alice")
    with pytest.raises(EditRefused, match=r"holdfast-w1-eth0 has 10.28.9.1/32, which is not within network red"):
        editor.change([network("red", "10.28.0.0/24")], who="alice")
    (edit,) = editor.change([network("red", "10.28.0.0/20")], who="alice")
    assert edit.did is ChangeKind.CHANGED


def test_a_change_of_a_network_is_undone(editor: Editor) -> None:
    editor.change([network("red", "10.28.0.0/16")], who="alice")
    editor.change([network("red", "10.28.0.0/15")], who="alice")
    assert editor.undo(NETWORK, "red", who="bob")[0].did is ChangeKind.CHANGED
    assert b'"10.28.0.0/16"' in editor.objects(NETWORK)[0].doc
