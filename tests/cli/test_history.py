"""`holdfast history` says where the leader's decisions are recorded."""

from __future__ import annotations

from holdfast.cli.history import leads_elsewhere
from holdfast.server.election.views import ElectorView


def view(name: str, leader: str) -> ElectorView:
    return ElectorView(name, "following", leader, 7, 1.0, 10.0, 15.0, {})


def test_a_follower_names_the_server_that_leads() -> None:
    note = leads_elsewhere([view("ctl-2", leader="ctl-1")])
    assert note is not None
    assert note.startswith("server ctl-1 leads")
    assert note.endswith("run holdfast history there")


def test_nothing_is_said_where_the_leader_runs_or_none_leads() -> None:
    assert leads_elsewhere([view("ctl-1", leader="ctl-1"), view("ctl-2", leader="ctl-1")]) is None
    assert leads_elsewhere([view("ctl-2", leader="")]) is None
    assert leads_elsewhere([]) is None
