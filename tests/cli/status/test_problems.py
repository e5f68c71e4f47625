"""Problems of agents on the status page."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.agent.report.summary import AgentDetails, SourceSummary
from holdfast.cli.status.page import agent_lines, exit_code, render
from holdfast.cli.status.problems import agent_problems, problems
from holdfast.cli.status.view import StatusView
from holdfast.model.control.identity import StoreRefusal
from holdfast.runtime.daemon.report import DaemonReport, WorkerReport

NOW = datetime(2026, 3, 1, 3, 7, 9, tzinfo=UTC)
WELL = AgentDetails(
    "r1", "linux", [SourceSummary("region-a", 7, 900.0, 213, 9_000)], True, counts={"peers": 213, "programmed": 9_000}
)
UNSYNCED = AgentDetails("r1", "linux", [SourceSummary("region-b", None, 751.0, 214, 9_000)])


def page(*agents: AgentDetails) -> str:
    return render(StatusView([DaemonReport("agent", "1.2.3", 4_711, 0.6, [])], agents=agents), NOW)


def test_a_healthy_agent_is_one_line() -> None:
    assert page(WELL) == (
        "holdfast 1.2.3   agent   03:07:09Z\n"
        "\n"
        "NEEDS YOU  0        handled by itself  0\n"
        "\n"
        "AGENT    r1   213 peers   programmed 9,000   held 0   failed 0   pending deletes 0\n"
        "\n"
        "DAEMON              PULSE  STATE                   BACKLOG     LAG  RESTARTS 24h\n"
        "agent                   –  no workers\n"
    )


def test_a_worker_that_says_held_and_names_nothing_is_not_green() -> None:
    """C64: a balancer at the end of its warm-up, whose first write has not been confirmed."""
    worker = WorkerReport("vips", 7, "running", "ok", "held: warm_up", 0.1, 0, 0.0, 0, crash_looping=False)
    view = StatusView([DaemonReport("balancer", "1.2.3", 4_711, 0.6, [worker])], {"balancer/vips": []})
    (problem,) = problems(view)
    assert problem.sentence.startswith("held: warm_up; it does not say what it holds")
    assert exit_code(view) == 3


def test_a_source_that_is_silent_for_long_needs_action_and_says_what_it_keeps() -> None:
    shown = page(UNSYNCED)
    assert " 1 r1               unsynced: region-b, 00:12:31, keeping 214 peers\n" in shown
    assert "    To inspect: holdfast explain host r1\n" in shown
    assert "    To release: holdfast source forget region-b --reason …\n" in shown
    assert exit_code(StatusView([], agents=[UNSYNCED])) == 1


def test_a_source_that_has_only_just_been_asked_needs_no_action() -> None:
    (problem,) = agent_problems(AgentDetails("r1", "linux", [SourceSummary("region-b", None, 3.0, 214, 9_000)]))
    assert not problem.needs_action


def test_an_agent_that_cannot_start_says_why() -> None:
    (problem,) = agent_problems(AgentDetails("r1", "linux", startup_error="the journal was written by a newer release"))
    assert problem.sentence.endswith("programmed state stays: the journal was written by a newer release")


def test_a_host_that_the_inventory_does_not_know_needs_action() -> None:
    (problem,) = agent_problems(AgentDetails("r1", "linux", registered=False))
    assert problem.needs_action
    assert "does not have this host" in problem.sentence
    assert problem.fix == "holdfast apply, with r1 in the file"


def test_conflicts_seen_under_a_verdict_are_counted_in_its_problem() -> None:
    restored = StoreRefusal("store_restored", "the store went back to mark 3", "holdfast store adopt --reason WHY")
    agents = [
        AgentDetails(host, "linux", conflicts=[f"conflict {n}" for n in range(4)], store_refusals=[restored])
        for host in ("r1", "r2")
    ]
    (problem,) = problems(StatusView([], agents=agents))
    assert problem.sentence == (
        "restored from a backup: the store went back to mark 3; reported by 2 agents; "
        "8 address conflicts seen meanwhile"
    )


def test_conflicts_are_named_and_the_rest_is_counted() -> None:
    sentences = [
        one.sentence
        for one in agent_problems(AgentDetails("r1", "linux", conflicts=[f"conflict {n}" for n in range(9)]))
    ]
    assert sentences == ["conflict 0", "conflict 1", "conflict 2", "and 6 more conflicts"]


def test_several_agents_are_counted_together() -> None:
    assert agent_lines([WELL, WELL])[1].startswith("AGENT    2 here   programmed 18,000")


def test_a_history_that_cannot_be_pruned_needs_action() -> None:
    (problem,) = problems(StatusView([], pruning_fails="permission denied for table changes"))
    assert problem.sentence.startswith("old history of the inventory is not pruned, and grows: permission denied")
    assert (problem.needs_action, problem.inspect) == (True, "holdfast history history")


def test_a_daemon_that_refused_its_configuration_needs_action_with_the_first_error() -> None:
    refused = "lb.yaml:9:10: balancer.backends.b2.adress: is not a known field\nlb.yaml:13:13: bad\nlb.yaml:14:1: bad"
    (problem,) = problems(StatusView([DaemonReport("balancer", "1.2.3", 1, 0.1, [], config_refused=refused)]))
    assert problem.needs_action
    assert problem.sentence == (
        "the configuration was refused on reload, the running one stays: "
        "lb.yaml:9:10: balancer.backends.b2.adress: is not a known field, and 2 more errors"
    )
    assert problem.inspect == "holdfast config check"
    (problem,) = problems(StatusView([DaemonReport("balancer", "1.2.3", 1, 0.1, [], config_refused="a: bad\nb: bad")]))
    assert problem.sentence.endswith("a: bad, and another error")
