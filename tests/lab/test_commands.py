"""Commands on a lab of real processes: what a newcomer types first, and what only another machine could answer."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.lab.fleet import layout
from holdfast.testing.real.processes import wait_until
from tests.lab.harness import needs_etcd, release_brakes


def holdfast(runtime: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--runtime", str(runtime)])


def on_inventory(lab: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--set", f"inventory.database={layout.database(lab / 'state')}"])


@needs_etcd
def test_frontends_and_backends_of_a_balancer_with_a_file_are_shown(lab: Path) -> None:
    wait_until(lambda: " up " in holdfast(lab / "run", "get", "frontends").output, "the web site is up", within=300)
    frontends = holdfast(lab / "run", "get", "frontends")
    assert frontends.output.startswith("FRONTEND  ADDRESS ")
    assert "www       192.0.2.80:80/tcp" in frontends.output
    backends = holdfast(lab / "run", "get", "backends", "-o", "name")
    assert backends.output.split() == ["web-1", "web-2", "web-3"]


@needs_etcd
def test_a_route_that_was_deleted_is_explained_by_its_deletion(lab: Path) -> None:
    runtime, address = lab / "run", "10.28.1.1"

    def explained() -> str:
        return holdfast(runtime, "explain", "route", address, "--host", "r1-02").output

    wait_until(lambda: "packets to 10.28.1.1 go" in explained(), "the route is programmed", within=300)
    name = "holdfast-web--01-eth0"
    assert on_inventory(lab, "delete", "endpoint", name, "--reason", "a test").exit_code == 0

    def is_gone() -> bool:
        release_brakes(lab)
        return "Not in the kernel of r1-02, and not wanted. Deleted " in explained()

    try:
        wait_until(is_gone, "it is gone", within=300)
        shown = explained()
    finally:
        assert on_inventory(lab, "undo", "endpoint", name, "--reason", "a test").exit_code == 0
    assert "\nROUTE       10.28.1.1/32\n" in shown
    assert "\nWANTED      by nobody any more; before that by the store, revision " in shown
    assert "\nBECAUSE     " in shown
    assert "  delete route 10.28.1.1/32: " in shown
    wait_until(lambda: "packets to 10.28.1.1 go" in explained(), "the route is back", within=300)


@needs_etcd
def test_where_several_agents_run_a_route_needs_its_host(lab: Path) -> None:
    def refused(*words: str) -> bool:
        told = holdfast(lab / "run", *words)
        return (told.exit_code, "name one with --host: r1-01, r1-02" in told.output) == (2, True)

    # One agent may start before the other.
    wait_until(lambda: refused("explain", "route", "10.28.1.1"), "both agents run", within=300)
    assert refused("get", "peers")
    assert refused("get", "routes")
    assert refused("agent", "pending")


@needs_etcd
def test_on_a_machine_with_a_server_only_the_fleet_is_explained_or_the_machine_is_named(lab: Path) -> None:
    server = lab / "run" / "ctl-1"
    wait_until(lambda: holdfast(server, "explain", "server", "ctl-2").exit_code == 0, "ctl-2 is registered", within=300)
    other = holdfast(server, "explain", "server", "ctl-2")
    assert other.output.startswith(("ctl-2 leads, term ", "ctl-2 does not lead.\n"))
    assert "its decisions are on its machine: holdfast explain server ctl-2" in other.output
    host = holdfast(server, "explain", "host", "r1-01")
    assert host.output.startswith("r1-01 is a host of this fleet."), host.output
    unknown = holdfast(server, "explain", "host", "no-such-host")
    assert (unknown.exit_code, unknown.output.count("\n")) == (1, 1)
    assert "no host no-such-host: neither inventory nor store has it" in unknown.output
    route = holdfast(server, "explain", "route", "10.28.1.1")
    assert route.exit_code == 3
    assert "run holdfast explain route 10.28.1.1 on the host in question" in route.output
    frontend = holdfast(server, "explain", "frontend", "www")
    assert frontend.exit_code == 3
    assert "run holdfast explain frontend www where one is" in frontend.output
