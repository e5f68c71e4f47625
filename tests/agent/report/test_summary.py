"""Summary of an agent: gates, problems and counts in its report, and what it keeps for an unsynced source."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.agent.claims import Claim, ClaimKey, Owner, RemoteRoute, route
from holdfast.agent.report.summary import AgentSummary, Moment
from holdfast.model.base.time import Instant, seconds
from holdfast.reconcile import Change, Closed, Op, Outstanding, Owned, Synced, SyncReason

AT = Moment(Instant(10_000_000_000_000), datetime(2026, 11, 15, 3, 12, 44, tzinfo=UTC))
AGO = AT.now - seconds(60)


def owned(host: str = "r1", source: str = "region-a", *, missing: bool = False) -> Owned[Claim]:
    return Owned(Claim(RemoteRoute("192.0.2.1"), Owner(host), missing), source, 7)


def story(prefix: str, *, closed: Closed | None = None, error: str | None = None) -> Outstanding[ClaimKey, Claim]:
    return Outstanding(Change(Op.DELETE, route(prefix), owned(), None), AGO, closed, error)


def standing(
    *stories: Outstanding[ClaimKey, Claim],
    sources: dict[str, Synced] | None = None,
    present: dict[ClaimKey, Owned[Claim]] | None = None,
    unregistered_since: Instant | None = None,
) -> AgentSummary:
    return AgentSummary(
        "1", "boot-1", "r0", stories, sources or {}, present or {}, unregistered_since=unregistered_since
    )


def test_what_a_gate_holds_is_one_gate_and_one_trouble_for_each_object() -> None:
    closed = Closed("sync", SyncReason.UNREADABLE, AGO, "mend or delete it", "region-a: x")
    report = standing(story("10.0.0.1/32", closed=closed), story("10.0.0.2/32", closed=closed)).report(AT)
    assert [(gate.gate, gate.reason, gate.opens) for gate in report.gates] == [
        ("sync", SyncReason.UNREADABLE.value, "mend or delete it")
    ]
    assert [(one.key, one.state, one.since.minute) for one in report.troubles] == [
        ("route 10.0.0.1/32", "held", 11),
        ("route 10.0.0.2/32", "held", 11),
    ]
    assert report.counts["held"] == 2


def test_what_failed_is_named_before_what_is_held() -> None:
    closed = Closed("sync", SyncReason.UNREADABLE, AGO, "", "")
    stories = story("10.0.0.1/32", closed=closed), story("10.0.0.2/32", error="the kernel is out of memory")
    report = standing(*stories).report(AT)
    assert next((one.key, one.reason) for one in report.troubles) == (
        "route 10.0.0.2/32",
        "delete: the kernel is out of memory",
    )


def test_of_many_troubles_the_first_are_named_and_the_rest_is_counted() -> None:
    closed = Closed("sync", SyncReason.UNREADABLE, AGO, "", "")
    stories = [story(f"10.0.{n // 256}.{n % 256}/32", closed=closed) for n in range(1_000)]
    report = standing(*stories).report(AT)
    assert (len(report.troubles), report.troubles_left_out, report.counts["held"]) == (50, 950, 1_000)


def test_a_change_that_is_about_to_be_made_is_no_trouble() -> None:
    assert standing(story("10.0.0.1/32")).report(AT).troubles == ()


def test_a_source_without_a_list_is_a_closed_gate_although_nothing_waits_for_it() -> None:
    report = standing(sources={"region-b": Synced(AGO)}).report(AT)
    assert [(gate.gate, gate.scope, gate.opens) for gate in report.gates] == [
        ("sync", "region-b", "a complete list from region-b, or: holdfast source forget region-b --reason …")
    ]


def test_the_revision_is_that_of_the_source_that_is_least_far() -> None:
    assert standing(sources={"a": Synced(AGO, 9), "b": Synced(AGO, 7)}).report(AT).synced_revision == 7
    assert standing(sources={"a": Synced(AGO, 9), "b": Synced(AGO)}).report(AT).synced_revision is None


def test_an_unsynced_source_shows_for_how_long_and_how_many_peers_it_keeps() -> None:
    present = {route(f"10.0.0.{n}/32"): owned(f"r{n % 3}", "region-b") for n in range(9)}
    silent = Synced(AT.now - seconds(751))
    (keeping,) = standing(sources={"region-b": silent}, present=present).by_source(AT.now)
    assert keeping.sentence == "unsynced: region-b, 00:12:31, keeping 2 peers"


def test_an_object_in_the_journal_and_not_in_the_kernel_does_not_count_as_programmed() -> None:
    present = {route("10.0.0.1/32"): owned(), route("10.0.0.2/32"): owned(missing=True)}
    assert standing(present=present).counts()["programmed"] == 1


def test_a_host_that_the_inventory_does_not_know_says_so() -> None:
    (gate,) = standing(unregistered_since=AGO).report(AT).gates
    assert (gate.gate, gate.opens) == ("registration", "holdfast apply, with this host in the file")
    assert "does not have this host" in gate.reason
