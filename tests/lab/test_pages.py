"""README.md and docs/getting-started.md: each command as it is written, on a lab, or the reason why it is not run."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.cli.lab.scene import wait_until_healthy
from holdfast.inventory.changes import WantedObject
from holdfast.lab.fleet import layout, seed
from holdfast.lab.scenes.stage import Lab
from holdfast.testing.real.processes import wait_until
from tests.house import repository
from tests.lab.harness import commands, needs_etcd, typed

PAGES = ("README.md", "docs/getting-started.md")

SHOWN = {
    ".venv/bin/holdfast status": r"^LEADER +ctl-\d +term \d+",
    ".venv/bin/holdfast leader": r"^ctl-\d leads, term \d+",
    ".venv/bin/holdfast balancer status": r"^www +192\.0\.2\.80:80/tcp",
    ".venv/bin/holdfast agent peers --host r1-01": r"^r1-02 +direct 192\.0\.2\.2 ",
    ".venv/bin/holdfast explain host r1-02": r"^AGENT +alive",
    ".venv/bin/holdfast explain worker syncer": r"^ctl-\d/syncer is ok \(pid \d+\)",
    ".venv/bin/holdfast top": r"^ctl-1/syncer +\d+ +\d+\.\d % +\d+ MiB",
    ".venv/bin/holdfast explain endpoint holdfast-web--01-eth0": r"^endpoint holdfast-web--01-eth0 is wanted",
    "holdfast status -o json": r'"supervisor_pid": \d+',
    "holdfast lab break --help": r"^ +leader-freeze +Freeze all processes",
    "holdfast history": r"^\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z  \S+ +\w+ ",
}
"""Commands that show something, with what each shows on any healthy lab."""

MISTAKE = (
    'holdfast delete endpoint holdfast-{web,db,cache}--0{1,2,3,4}-eth0 --reason "wrong file"',
    "holdfast status",
    "holdfast undo endpoint NAME",
)

IN_A_CLONE = {"make": "^make up +start a demo fleet", "make up ARGS=--help": r"^Usage: holdfast lab up"}
"""Goals of make that need nothing but `make setup`."""

_ROOT = "needs root; tests/lab/scenes/test_balancer_on_kernel.py plays the same in namespaces of its own"
_LONG = "takes minutes or hours: what it runs is tested by itself"
_NETWORK = "needs a network, or changes the system"
ELSEWHERE = {
    ".venv/bin/holdfast lab break leader-freeze --seconds 12": "tests/lab/scenes/test_leader.py runs it as written",
    "holdfast lab break ip-reuse": "tests/lab/scenes/test_agent.py runs it as written",
    "holdfast lab break NAME": "NAME is any scene: tests/lab/scenes plays all of them",
    ".venv/bin/holdfast lab down": "tests/cli/test_operating.py ends a lab of its own with it",
    ".venv/bin/holdfast": "no command, but where it is",
    "make up": "never ends; it starts `holdfast lab up`, as tests/cli/test_operating.py does",
    "holdfast server": "a daemon, never ends: tests/deploy/test_install.py runs it",
    "holdfast agent": "a daemon, never ends: tests/deploy/test_install.py runs it",
    "holdfast balancer": "a daemon, never ends: tests/balancer/test_daemon.py runs it",
    "sudo make lab": _ROOT,
    "make lab": "never ends; without root, it needs user namespaces",
    "sudo ip netns list": _ROOT,
    "sudo ip netns exec NAME-lb-1 nft list table inet holdfast": _ROOT,
    "sudo ip netns exec NAME-client curl http://192.0.2.80/": _ROOT,
    "sudo .venv/bin/holdfast lab break balancer-restart": _ROOT,
    "sudo .venv/bin/holdfast lab break backend-down --start --netns": _ROOT,
    "make test": "runs this test",
    "make check": "make test runs it first",
    "make docs": "make check runs it",
    "make setup": "tests/house/test_commands.py runs it in a clone of its own",
    "make setup PYTHON=/usr/bin/python3.13": "tests/house/test_commands.py runs it with other programs",
    "make faults": _LONG,
    "make soak": _LONG,
    "make bench": _LONG,
    "make bench ARGS=failover": _LONG,
    "make bench ARGS=lb": _LONG,
    "make bench ARGS=probes": _LONG,
    "make bench ARGS=routes": _LONG,
    "make dist": "takes a minute: tests/deploy/conftest.py makes the packages",
    "make fuzz": _NETWORK,
    "make audit": _NETWORK,
    "make lock": _NETWORK,
    "make test-openstack": _NETWORK,
    "make system-deps": _NETWORK,
    "apt-get install python3-venv": _NETWORK,
}
"""Commands that no test of this file runs, with the reason."""


def test_every_command_of_the_pages_is_run_or_has_a_reason() -> None:
    found = {one for page in PAGES for one in commands(page)}
    assert found == {*SHOWN, *MISTAKE, *IN_A_CLONE, *ELSEWHERE}


@needs_etcd
def test_what_a_newcomer_looks_at_is_shown(lab: Path) -> None:
    asyncio.run(wait_until_healthy(Lab(lab), release=True))
    for command, shown in SHOWN.items():
        done = typed(lab, command)
        assert done.returncode == 0, (command, done.stdout)
        assert re.search(shown, done.stdout, re.MULTILINE), (command, done.stdout)


@pytest.fixture
def eighteen(lab: Path) -> Iterator[Sequence[WantedObject]]:
    """Endpoints of six hosts, of which four have no agent: as many as the lab of the page has."""
    names = [f"r1-{number:02}" for number in range(1, 7)]
    new = seed.initial_objects(names)[(1 + len(layout.WORKLOADS)) * len(layout.hosts(lab / "state")) :]
    asyncio.run(wait_until_healthy(Lab(lab), release=True))
    seed.change(lab / "state", new, "a page is tested")
    wait_until(lambda: not Lab(lab).unsynced(), "the new hosts are in etcd")
    yield [one for one in seed.initial_objects(names) if "eth0" in one.name]
    seed.change(lab / "state", [seed.deleted(one) for one in new], "the page is tested")
    left = asyncio.run(wait_until_healthy(Lab(lab), release=True))
    assert not left


@needs_etcd
def test_the_mistake_of_the_page_is_held_and_undone(lab: Path, eighteen: Sequence[WantedObject]) -> None:
    delete, status, undo = MISTAKE
    assert len(eighteen) == 18
    deleted = typed(lab, delete)
    assert deleted.returncode == 0, deleted.stdout
    held = r"syncer +held by brake .*would delete \d+ of \d+ endpoints \(\d\d\.\d%\): less than half would stay"
    wait_until(lambda: re.search(held, typed(lab, status).stdout) is not None, "the brake holds", within=60)
    shown = typed(lab, status)
    assert shown.returncode == 1
    assert re.search(
        r"To inspect: holdfast diff inventory\n +To release: holdfast gate allow syncer/brake", shown.stdout
    )
    first, *others = eighteen
    restored = typed(lab, undo.replace("NAME", first.name))
    assert restored.returncode == 0, restored.stdout
    seed.change(lab / "state", others, "the rest of them")
    wait_until(lambda: re.search(held, typed(lab, status).stdout) is None, "the problem is gone", within=60)


@pytest.mark.parametrize("command", IN_A_CLONE)
def test_a_goal_of_make_says_what_it_does(command: str) -> None:
    if (repository.ROOT / ".venv").resolve() != Path(sys.prefix).resolve():
        pytest.skip("needs the .venv of make setup")
    done = subprocess.run(["sh", "-c", command], cwd=repository.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(IN_A_CLONE[command], done.stdout, re.MULTILINE), done.stdout
