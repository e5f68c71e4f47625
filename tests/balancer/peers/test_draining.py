"""Flows of drained hosts: counted by a measurement after the drain was programmed, and not before."""

from __future__ import annotations

from holdfast.balancer.dataplane.api import Counters
from holdfast.balancer.peers.draining import DrainingHosts
from holdfast.model.base.time import NEVER, seconds

ON = {"r1": ("web-1", "api-1")}
PASSED = {("www", "web-1"): Counters(flows=3), ("api", "web-1"): Counters(flows=2), ("www", "web-2"): Counters(flows=7)}
BEGUN = NEVER + seconds(100)


def test_a_measurement_from_before_the_drain_does_not_count() -> None:
    hosts = DrainingHosts()
    assert hosts.flows(ON, (), PASSED, BEGUN - seconds(1), BEGUN) == {}
    assert hosts.flows(ON, (), PASSED, BEGUN, BEGUN + seconds(5)) == {}
    assert hosts.flows(ON, (), PASSED, BEGUN + seconds(10), BEGUN + seconds(10)) == {"r1": 5}


def test_a_drain_that_is_not_programmed_yet_does_not_count() -> None:
    hosts = DrainingHosts()
    assert hosts.flows(ON, ("api-1",), PASSED, BEGUN, BEGUN) == {}
    late = BEGUN + seconds(20)
    assert hosts.flows(ON, (), PASSED, late, late) == {}
    assert hosts.flows(ON, (), PASSED, late + seconds(15), late + seconds(15)) == {"r1": 5}


def test_a_change_of_another_backend_holds_nothing_up() -> None:
    hosts = DrainingHosts()
    assert hosts.flows(ON, ("web-2",), PASSED, None, BEGUN) == {}
    assert hosts.flows(ON, ("web-2",), PASSED, BEGUN + seconds(1), BEGUN + seconds(1)) == {"r1": 5}


def test_a_drained_host_without_backends_has_no_flows() -> None:
    hosts = DrainingHosts()
    hosts.flows({"r9": ()}, (), PASSED, None, BEGUN)
    assert hosts.flows({"r9": ()}, (), PASSED, BEGUN + seconds(1), BEGUN + seconds(1)) == {"r9": 0}


def test_a_dataplane_that_counts_no_flows_says_so() -> None:
    assert DrainingHosts().flows(ON, (), None, None, BEGUN) == {"r1": None}


def test_a_host_that_is_drained_again_is_counted_again() -> None:
    hosts = DrainingHosts()
    hosts.flows(ON, (), PASSED, None, BEGUN)
    hosts.flows({}, (), PASSED, None, BEGUN + seconds(1))
    measured = BEGUN + seconds(2)
    assert hosts.flows(ON, (), PASSED, measured, BEGUN + seconds(3)) == {}
