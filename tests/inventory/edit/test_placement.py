"""No new endpoint goes to a drained or unknown host; those that are there may change."""

from __future__ import annotations

import pytest

from holdfast.inventory.changes import EditRefused
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.edit.rules import Placement
from tests.inventory.harness import endpoint, endpoint_name, host, migration

DRAINED = Placement({"r2": "ada: “new disk”"}, on_known_hosts=True)
REFUSAL = "cannot go to host r2, which is drained by ada: “new disk”.*holdfast undrain host r2"


@pytest.fixture
def editor(editor: Editor) -> Editor:
    editor.change([host(1), host(2), endpoint(1, on="r1"), endpoint(2, on="r2")], who="alice")
    return editor


def test_a_new_endpoint_on_a_drained_host_is_refused(editor: Editor) -> None:
    with pytest.raises(EditRefused, match=REFUSAL):
        editor.change([endpoint(3, on="r2")], who="alice", placement=DRAINED)
    editor.change([endpoint(3, on="r1")], who="alice", placement=DRAINED)


def test_a_move_or_a_migration_to_a_drained_host_is_refused(editor: Editor) -> None:
    with pytest.raises(EditRefused, match=REFUSAL):
        editor.move(endpoint_name(1), "r2", who="alice", placement=DRAINED)
    with pytest.raises(EditRefused, match=REFUSAL):
        editor.change([migration(1, to="r2")], who="alice", placement=DRAINED)


def test_an_endpoint_on_a_drained_host_may_change_and_leave(editor: Editor) -> None:
    assert editor.change([endpoint(2, on="r2", address="10.65.7.7")], who="alice", placement=DRAINED)
    assert editor.move(endpoint_name(2), "r1", who="alice", placement=DRAINED)


def test_an_endpoint_on_a_host_that_is_not_in_the_inventory_is_refused(editor: Editor) -> None:
    refusal = "is on host r9, which is not in the inventory: apply that host as well"
    with pytest.raises(EditRefused, match=refusal):
        editor.change([endpoint(3, on="r9")], who="alice", placement=DRAINED)
    editor.change([endpoint(3, on="r9"), host(9)], who="alice", placement=DRAINED)


def test_a_batch_with_several_mistakes_is_refused_with_all_of_them(editor: Editor) -> None:
    wrong = [endpoint(3, on="r8"), endpoint(4, on="r9"), endpoint(5, on="r1", address="127.0.0.1/32")]
    with pytest.raises(EditRefused) as refused:
        editor.change(wrong, who="alice", placement=DRAINED)
    sentences = str(refused.value).splitlines()
    assert [one.partition(":")[0] for one in sentences] == [
        "endpoint holdfast-w3-eth0 is on host r8, which is not in the inventory",
        "endpoint holdfast-w4-eth0 is on host r9, which is not in the inventory",
        "endpoint holdfast-w5-eth0 cannot have 127.0.0.1/32",
    ]


def test_a_batch_with_very_many_mistakes_is_refused_with_some_and_their_number(editor: Editor) -> None:
    wrong = [endpoint(number, on="nowhere") for number in range(3, 60)]
    with pytest.raises(EditRefused) as refused:
        editor.change(wrong, who="alice", placement=DRAINED)
    assert str(refused.value).splitlines()[-1] == "and 37 more"
    assert len(str(refused.value).splitlines()) == 21
