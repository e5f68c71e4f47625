"""docs/install.md, each command as it is written: three machines with a systemd each become a fleet that fails over."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.deploy.machine import Machine, cabled
from tests.house import repository

HOSTS = ("h1", "h2", "h3")
TOOLS = ("etcd", "etcdctl", "gpg", "nft", "openssl", "pg_createcluster", "prometheus", "promtool", "sshd")
SSHD = "/usr/sbin/sshd"


class Block(NamedTuple):
    """A block of commands of the page, under its heading."""

    heading: str
    hosts: tuple[str, ...]
    script: str


def blocks(page: str) -> list[Block]:
    """Return the blocks that say where they are run, in the order of the page."""
    found = []
    heading = ""
    for part in page.split("\n\n"):
        if part.startswith("#"):
            heading = part.splitlines()[0].lstrip("# ")
        if (on := re.match(r"    # on ([^\n]+)\n", part)) is not None:
            script = "\n".join(line.removeprefix("    ") for line in part.splitlines())
            found.append(Block(heading, tuple(re.findall(r"h\d", on[1])), script))
    return found


WITHIN_S = 300
"""For a block: a minute on an idle machine at the most."""
TEXT = repository.text("docs/install.md")
PAGE = blocks(TEXT)
HEADINGS = list(dict.fromkeys(block.heading for block in PAGE))


def without_index(machine: Machine) -> None:
    """Let apt know only what is installed: no archive can be reached from a machine of this test."""
    machine.run("rm -rf /var/lib/apt/lists/*")


def let_in(machines: dict[str, Machine]) -> None:
    """Let root of h1 log in on all of them, which the page asks for."""
    first = machines["h1"]
    first.run("mkdir -p -m 700 /root/.ssh; ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519")
    first.run("printf 'Host *\\n  StrictHostKeyChecking accept-new\\n  LogLevel ERROR\\n' >/root/.ssh/config")
    key = first.run("cat /root/.ssh/id_ed25519.pub").stdout.strip()
    for machine in machines.values():
        machine.run(f"mkdir -p -m 700 /root/.ssh; echo '{key}' >/root/.ssh/authorized_keys")
        machine.run("mkdir -p /run/sshd; ssh-keygen -A; systemd-run --quiet --unit sshd-of-test /usr/sbin/sshd -D")


@pytest.fixture(scope="module")
def hosts(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Machine]]:
    """h1, h2 and h3, booted and on one switch, with the packages in /root."""
    if missing := [name for name in TOOLS if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None]:
        pytest.skip(f"needs {' and '.join(missing)}")
    folder = tmp_path_factory.mktemp("install")
    files = [*packages.glob("*.deb"), *packages.glob("SHA256SUMS*")]
    with ExitStack() as stack:
        machines = {}
        for name in HOSTS:
            machine = machines[name] = Machine(name, folder)
            stack.callback(machine.stop)
            machine.boot()
            without_index(machine)
            for path in files:
                shutil.copy(path, machine.root / "root")
            shutil.copy(packages.with_suffix(".asc"), machine.root / "root" / "releases.asc")
        stack.enter_context(cabled(*machines.values()))
        let_in(machines)
        yield machines


def run_section(heading: str, hosts: dict[str, Machine]) -> dict[str, str]:
    """Run the blocks under a heading; return what they printed, by host."""
    printed = dict.fromkeys(HOSTS, "")
    for block in PAGE:
        if block.heading == heading:
            for name in block.hosts:
                printed[name] += hosts[name].run(block.script, within_s=WITHIN_S).stdout
    return printed


def test_the_page_has_these_sections_with_commands() -> None:
    assert HEADINGS == [
        "Install on three hosts",
        "Packages",
        "Certificates",
        "etcd",
        "PostgreSQL",
        "Servers",
        "Agents",
        "Workloads",
        "A balancer",
        "Alerts",
        "Break it",
    ]


def test_every_block_with_a_command_says_where_it_is_run() -> None:
    parts = [part for part in TEXT.split("\n\n") if part.startswith("    ")]
    assert [part for part in parts if not part.startswith("    # on h")] == []


@pytest.mark.parametrize("heading", ["Install on three hosts", "Packages", "Certificates"])
def test_1_preparation(heading: str, hosts: dict[str, Machine]) -> None:
    run_section(heading, hosts)
    if heading == "Packages":
        assert hosts["h3"].run("holdfast inventory init", check=False).returncode != 0  # no SQL where no server is
        assert hosts["h1"].run("systemctl is-active holdfast-server", check=False).stdout.strip() == "inactive"


def test_2_etcd_has_three_members_and_a_user_for_each_daemon(hosts: dict[str, Machine]) -> None:
    run_section("etcd", hosts)
    anonymous = hosts["h1"].run(". /root/etcd.env; etcdctl put /holdfast/v1/no-region/leader x", check=False)
    assert anonymous.returncode != 0
    stolen = "ETCDCTL_USER=holdfast-agent-h3:$(cat /etc/holdfast/holdfast-agent)"
    refused = hosts["h3"].run(f". /root/etcd.env; {stolen} etcdctl put /holdfast/v1/no-region/leader x", check=False)
    assert "permission denied" in refused.stderr


def test_3_postgresql_takes_no_connection_without_tls(hosts: dict[str, Machine]) -> None:
    run_section("PostgreSQL", hosts)
    login = 'PGPASSWORD=$(cat /etc/holdfast/database) psql "host=h1 port=5433 user=holdfast dbname=holdfast sslmode={}"'
    refused = hosts["h2"].run(login.format("disable") + " -c 'SELECT 1'", check=False)
    assert "no encryption" in refused.stderr
    hosts["h2"].run(login.format("require") + " -c 'SELECT 1'")


def test_4_one_server_leads_and_the_other_follows(hosts: dict[str, Machine]) -> None:
    printed = run_section("Servers", hosts)["h2"]
    assert sorted(re.findall(r"^h\d +(leader|follower) ", printed, re.MULTILINE)) == ["follower", "leader"]
    assert re.search(r"^(bad|warn)", printed, re.MULTILINE) is None, printed


def test_5_every_agent_reports_and_has_a_user_of_its_own(hosts: dict[str, Machine]) -> None:
    run_section("Agents", hosts)
    for name in HOSTS:
        shown = hosts[name].run("systemctl show -P MainPID holdfast-agent").stdout.strip()
        assert f"HOLDFAST_STORE_USER=holdfast-agent-{name}" in hosts[name].run(f"cat /proc/{shown}/environ").stdout


def test_6_workloads_of_two_hosts_reach_each_other(hosts: dict[str, Machine]) -> None:
    printed = run_section("Workloads", hosts)
    assert "web1 on h2" in printed["h3"]
    assert "AGENT       on h2: up" in printed["h2"]


def test_7_the_address_of_the_service_answers(hosts: dict[str, Machine]) -> None:
    answers = run_section("A balancer", hosts)["h1"].splitlines()[-8:]
    assert set(answers) <= {"web1 on h2", "web2 on h3"}
    assert len(answers) == 8


def test_8_prometheus_has_the_rules_and_hears_every_daemon(hosts: dict[str, Machine]) -> None:
    run_section("Alerts", hosts)
    query = "curl -sS http://127.0.0.1:9090/api/v1"
    hosts["h3"].wait(f"{query}/query --data-urlencode 'query=count(up == 1)'", '"6"]', within_s=WITHIN_S)
    assert "HoldfastNoLeader" in hosts["h3"].run(f"{query}/rules").stdout


def test_9_the_fleet_outlives_a_server_and_a_host(hosts: dict[str, Machine]) -> None:
    printed = run_section("Break it", hosts)
    assert "lead leader" in printed["h1"]
    assert "1 of 3 members of etcd does not answer; if 1 more member is lost, nothing can be written" in printed["h1"]
    assert re.search(r"^web[12] on h[23]$", printed["h1"], re.MULTILINE)
    for name in HOSTS:
        assert hosts[name].run("systemctl list-units --failed --plain --no-legend 'holdfast-*' 'etcd*'").stdout == ""
