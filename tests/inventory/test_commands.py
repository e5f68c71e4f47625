"""The operator's commands on the inventory, and the files that they read."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.cli.change.inventory import InventorySession
from holdfast.inventory.api import DatabaseAway
from holdfast.inventory.edit.editor import Editor
from holdfast.inventory.kinds import KINDS
from holdfast.inventory.manifest.read import ManifestRefused, read
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT, EndpointName

FLEET = """
- kind: host
  name: r1
  labels: {rack: "12"}
  spec: {bgp: {ipv4Address: 192.0.2.1/24}}
- kind: endpoint
  spec: {node: r1, workload: web, endpoint: eth0, ipNetworks: [10.28.0.7]}
- kind: subnet
  name: red
  spec: {cidr: 10.28.0.0/16}
"""


ENDPOINT_LINE = "kind: endpoint\nspec: {node: r, workload: w, endpoint: e}"


class Hand:
    """An operator with one inventory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._database = f"inventory.database=sqlite:///{folder}/inventory.db"

    def __call__(self, *words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--set", self._database])

    def file(self, text: str) -> str:
        path = self.folder / "fleet.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)


@pytest.fixture
def run(tmp_path: Path) -> Hand:
    hand = Hand(tmp_path)
    assert hand("inventory", "init").exit_code == 0
    return hand


def test_a_file_is_applied_shown_and_applied_again_without_effect(run: Hand) -> None:
    first = run("apply", "-f", run.file(FLEET))
    assert first.stdout.splitlines() == ["host r1 created", "endpoint holdfast-web-eth0 created", "subnet red created"]
    again = run("apply", "-f", run.file(FLEET))
    assert (again.stdout, again.stderr) == ("", "3 unchanged\n")
    shown = run("get", "endpoints").stdout.splitlines()
    assert shown[0].split() == ["NAME", "HOST", "ADDRESSES", "INTERFACE"]
    assert shown[1].split() == ["holdfast-web-eth0", "r1", "10.28.0.7/32"]


SITE = """
- {kind: host, name: r1}
- {kind: network, name: red, spec: {prefixes: [10.28.0.0/16, "fd5f::/64"]}}
- kind: endpoint
  network: red
  spec: {node: r1, workload: web, endpoint: eth0, ipNetworks: [10.28.0.7]}
- {kind: health-check, name: http, spec: {type: http, path: /healthz, interval: 500ms}}
- {kind: backend, name: web-1, spec: {endpoint: holdfast-web-eth0, port: 80, healthcheck: http}}
- {kind: backend, name: web-2, spec: {host: r2, port: 80, healthcheck: [http]}}
- kind: frontend
  name: web
  spec:
    address: 203.0.113.10
    port: 80
    pools:
      - backends: {web-1: {}, web-2: {weight: 50}}
"""


def test_networks_and_frontends_are_applied_shown_and_applied_again_without_effect(run: Hand) -> None:
    told = run("apply", "-f", run.file(SITE))
    assert told.stdout.splitlines()[-1] == "frontend web created", told.stderr
    again = run("apply", "-f", run.file(SITE))
    assert (again.stdout, again.stderr) == ("", "7 unchanged\n")
    shown = run("get", "frontends").stdout.splitlines()
    assert shown[1].split() == ["web", "203.0.113.10", "tcp", "80", "web-1", "web-2"]
    assert run("get", "networks").stdout.splitlines()[1].split() == ["red", "10.28.0.0/16", "fd5f::/64"]
    assert run("get", "endpoints", "--network", "red").stdout.count("holdfast-web-eth0") == 1
    assert run("get", "endpoints", "--network", "blue").stdout.count("holdfast-web-eth0") == 0


@pytest.mark.parametrize("text", [FLEET, SITE], ids=["a fleet", "a site"])
def test_applying_the_yaml_of_get_changes_nothing(run: Hand, text: str) -> None:
    assert run("apply", "-f", run.file(text)).exit_code == 0
    kinds = ("hosts", "networks", "subnets", "endpoints", "migrations", "health-checks", "backends", "frontends")
    printed = "".join(run("get", kind, "-o", "yaml").stdout for kind in kinds)
    again = run("apply", "-f", run.file(printed))
    assert (again.stdout, again.stderr) == ("", f"{text.count('kind:')} unchanged\n"), printed


@pytest.fixture
def broken(run: Hand) -> Hand:
    """Of two hosts in the inventory, r1 is there as something that nobody can read."""
    assert run("apply", "-f", run.file(FLEET + "- {kind: host, name: r2, spec: {}}\n")).exit_code == 0
    with contextlib.closing(sqlite3.connect(run.folder / "inventory.db")) as database, database:
        database.execute("UPDATE objects SET doc = ? WHERE kind = 'host' AND name = 'r1'", (b"rubbish",))
    return run


def test_an_unreadable_object_is_named_and_the_rest_printed_as_json(broken: Hand) -> None:
    shown = broken("get", "hosts", "-o", "json")
    assert [one["name"] for one in json.loads(shown.stdout)] == ["r2"]
    assert (shown.exit_code, shown.stderr) == (0, "host r1 is unreadable: skipped\n")


def test_the_repair_of_an_unreadable_object_is_shown_as_a_difference(broken: Hand) -> None:
    shown = broken("diff", "-f", broken.file(FLEET)).stdout.splitlines()
    assert (shown[0], shown[2]) == ("changed host r1", "  -(unreadable)")


MOVE = """
- {kind: host, name: r2, spec: {}}
- {kind: host, name: r3, spec: {}}
- {kind: migration, name: holdfast-web-eth0, spec: {to: r2}}
"""


def test_a_migration_is_started_shown_redirected_and_cancelled(run: Hand) -> None:
    run("apply", "-f", run.file(FLEET))
    begun = run("apply", "-f", run.file(MOVE))
    assert begun.stdout.splitlines()[-1] == "migration holdfast-web-eth0 created", begun.stderr
    shown = run("get", "migrations").stdout.splitlines()
    assert [line.split() for line in shown] == [
        ["NAME", "ENDPOINT", "WORKLOAD", "FROM", "TO"],
        ["holdfast-web-eth0", "eth0", "web", "r1", "r2"],
    ]
    printed = run("get", "migration", "holdfast-web-eth0", "-o", "yaml").stdout
    assert printed == "- kind: migration\n  name: holdfast-web-eth0\n  spec:\n    to: r2\n"
    assert run("apply", "-f", run.file(printed)).stderr == "1 unchanged\n"
    elsewhere = run.file(MOVE.replace("to: r2", "to: r3"))
    assert run("diff", "-f", elsewhere).stdout.splitlines()[0] == "moved migration holdfast-web-eth0"
    assert run("apply", "-f", elsewhere).stdout == "migration holdfast-web-eth0 moved\n"
    assert run("undo", "migration", "holdfast-web-eth0").stdout == "migration holdfast-web-eth0 moved\n"
    assert run("delete", "migration", "holdfast-web-eth0").stdout == "migration holdfast-web-eth0 deleted\n"
    assert run("get", "migrations", "-o", "yaml").stdout == ""


def test_an_endpoint_is_moved_by_name(run: Hand) -> None:
    run("apply", "-f", run.file(FLEET + MOVE))
    would = run("move", "endpoint", "holdfast-web-eth0", "--to", "r2", "--dry-run")
    assert would.stdout.splitlines()[0] == "endpoint holdfast-web-eth0 would be moved"
    assert run(
        "move", "endpoint", "holdfast-web-eth0", "--to", "r2", "--reason", "switched over"
    ).stdout.splitlines() == [
        "endpoint holdfast-web-eth0 moved",
        "migration holdfast-web-eth0 ended: the endpoint is on r2 now",
    ]
    nowhere = run("move", "endpoint", "holdfast-web-eth0", "--to", "r9")
    assert (nowhere.exit_code, nowhere.stdout) == (1, "")
    assert nowhere.stderr.startswith("Error: host r9 is not in the inventory")


def test_a_command_that_ends_a_migration_says_so(run: Hand) -> None:
    run("apply", "-f", run.file(FLEET + MOVE))
    arrived = run.file(FLEET.replace("node: r1", "node: r2"))
    assert "deleted migration holdfast-web-eth0: the endpoint is on r2 now\n" in run("diff", "-f", arrived).stdout
    would = "migration holdfast-web-eth0 would be ended: the endpoint is on r2 now"
    assert run("apply", "-f", arrived, "--dry-run").stdout.splitlines()[-1] == would
    assert run("apply", "-f", arrived).stdout.splitlines() == [
        "endpoint holdfast-web-eth0 moved",
        "migration holdfast-web-eth0 ended: the endpoint is on r2 now",
    ]
    run("undo", "endpoint", "holdfast-web-eth0")
    run("undo", "migration", "holdfast-web-eth0")
    gone = run("delete", "endpoint", "holdfast-web-eth0").stdout.splitlines()
    assert gone[-1] == "migration holdfast-web-eth0 ended: the endpoint is gone"


def test_a_refused_migration_is_one_sentence(run: Hand) -> None:
    run("apply", "-f", run.file(FLEET))
    told = run("apply", "-f", run.file(MOVE.replace("to: r2", "to: r1")))
    assert (told.exit_code, told.stderr.count("\n")) == (1, 1)
    assert "endpoint holdfast-web-eth0 is on r1, so it cannot migrate there" in told.stderr


def test_diff_shows_what_apply_would_change_and_changes_nothing(run: Hand) -> None:
    run("apply", "-f", run.file(FLEET))
    told = run("diff", "-f", run.file(FLEET.replace("10.28.0.7", "10.28.0.8")))
    assert told.exit_code == 1
    assert told.stdout.splitlines()[0] == "changed endpoint holdfast-web-eth0"
    assert '-      "10.28.0.7/32"' in told.stdout
    assert run("diff", "-f", run.file(FLEET)).exit_code == 0


def test_delete_and_undo(run: Hand) -> None:
    run("apply", "-f", run.file(FLEET))
    refused = run("delete", "host", "r1")
    assert (refused.exit_code, "move or delete them first" in refused.stderr) == (1, True)
    assert run("delete", "endpoint", "holdfast-web-eth0").stdout == "endpoint holdfast-web-eth0 deleted\n"
    assert run("undo", "endpoint", "holdfast-web-eth0").stdout == "endpoint holdfast-web-eth0 created\n"
    (found,) = json.loads(run("get", "endpoint", "holdfast-web-eth0", "-o", "json").stdout)
    assert found["spec"]["ipNetworks"] == ["10.28.0.7/32"]


def test_deleting_a_missing_object_is_one_sentence(run: Hand) -> None:
    told = run("delete", "host", "r9")
    assert (told.exit_code, told.stderr) == (1, "Error: no host r9 in the inventory; nothing was deleted\n")


def test_a_kind_that_the_inventory_does_not_hold_is_one_sentence(run: Hand) -> None:
    told = run("get", "pod").stderr
    assert "unknown kind 'pod': name one of hosts, networks, subnets, endpoints" in told


def test_without_tables_the_command_that_creates_them_is_named(tmp_path: Path) -> None:
    told = Hand(tmp_path)("get", "hosts")
    assert (told.exit_code, told.stderr.count("\n")) == (1, 1)
    assert "run holdfast inventory init" in told.stderr


def test_without_an_inventory_the_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a lab in the clone would be used
    told = CliRunner().invoke(main, ["get", "hosts"])
    assert (told.exit_code, "set inventory.database" in told.stderr) == (1, True)


def test_a_key_is_ignored_listed_and_no_longer_ignored(run: Hand) -> None:
    done = run("ignore", "endpoint", "r9-openstack-vm1-eth0", "--reason", "the lab next door")
    assert done.exit_code == 0
    assert done.stderr.endswith("is ignored; end it with: holdfast ignore endpoint r9-openstack-vm1-eth0 --stop\n")
    (line,) = run("ignore", "--list").stdout.splitlines()
    assert re.fullmatch(r"endpoint r9-openstack-vm1-eth0  by \S+ at [\d:T-]+Z: “the lab next door”", line)
    again = run("ignore", "endpoint r9-openstack-vm1-eth0", "--reason", "twice")
    assert (again.exit_code, "is ignored already" in again.stderr) == (1, True)
    ended = run("ignore", "endpoint", "r9-openstack-vm1-eth0", "--stop")
    assert (ended.exit_code, run("ignore", "--list").stdout) == (0, "")
    assert run("ignore", "endpoint", "r9-openstack-vm1-eth0", "--stop").exit_code == 1


def test_a_key_may_be_given_as_the_store_has_it(run: Hand) -> None:
    key = ENDPOINT.key(Region(), EndpointName("r9", "openstack", "vm1", "eth0")).decode()
    assert run("ignore", key, "--reason", "theirs").exit_code == 0
    assert run("ignore", "endpoint", "r9-openstack-vm1-eth0", "--stop").exit_code == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give either KEY or --list"),
        (["endpoint", "r9-openstack-vm1-eth0"], "give --reason"),
        (["pod", "web", "--reason", "x"], "unknown kind 'pod'"),
        (["endpoint", "web", "--reason", "x"], "names no endpoint of the store"),
        (["endpoint", "--reason", "x"], "names no endpoint of the store"),
        (["/registry/pods/web", "--reason", "x"], "is not a key that Holdfast writes in this region"),
        (["endpoint", "r1-holdfast-web-eth0", "--reason", "x"], "r1-holdfast-web-eth0 is in the inventory"),
    ],
)
def test_what_cannot_be_ignored_is_one_sentence(run: Hand, words: list[str], sentence: str) -> None:
    assert run("apply", "-f", run.file(FLEET)).exit_code == 0
    refused = run("ignore", *words)
    assert refused.exit_code != 0
    assert sentence in refused.stderr
    assert run("ignore", "--list").stdout == ""


def test_waiting_without_a_syncer_ends_with_a_sentence(run: Hand) -> None:
    told = run("apply", "-f", run.file(FLEET), "--wait", "--timeout", "0.1")
    assert told.exit_code == 1
    assert "3 changes are not in the store after 0.1 s: see holdfast status" in told.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- kind: pod", "f:1: names no kind of the inventory: write kind: host, network, subnet, endpoint"),
        ("- kind: host", "f:1: is a host without a name"),
        ("- kind: host\n  name: a/b", "f:1: 'a/b' has a slash in it"),
        ("- kind: host\n  name: a\n- kind: host\n  nmae: b", "f:3: has an unknown field nmae; did you mean name?"),
        ("- kind: endpoint\n  spec: {node: r1}", "f:1: spec: object missing required field"),
        ("- kind: endpoint\n  spec: {ipNetwork: []}", "has an unknown field ipNetwork; did you mean ipNetworks?"),
        ("- kind: subnet\n  name: red\n  spec: {cidr: 10.0.0.300/8}", "is not an IP address"),
        ("- kind: network\n  name: red\n  spec: {prefixes: []}", "a network needs at least one prefix"),
        ("- kind: host\n  name: a\n  network: red", "f:1: has a network, which a host is not on"),
        ("- kind: backend\n  name: b\n  labels: {a: b}", "f:1: has labels, which a backend does not carry"),
        ("- kind: backend\n  name: b\n  spec: {port: 80}", "has neither address nor endpoint nor host"),
        ("- kind: frontend\n  name: w\n  spec:\n    addres: 1.2.3.4", "f:4: spec.addres is not a known field"),
        ("- kind: health-check\n  name: h\n  spec:\n    type: tcp\n    interval: 1 parsec", "f:5: spec.interval"),
        ("- kind: host\n  name: a\n- kind: host\n  name: a", "f:3: is host a again, first on line 1: remove one"),
        ("kind: host\nname: a\nlabels: [b]", "f:1: labels: expected `object`, got `array`"),
        ("kind: host\nname: a\nlabels: {a: {b: c}}", "f:1: labels[...]: expected `str`, got `object`"),
        ("kind: host\nname: a\nlabels: {holdfast/region: b}", "has the label holdfast/region, which follows from"),
        (f"{ENDPOINT_LINE}\nlabels: red", "f:1: labels: expected `object`, got `str`"),
        (f"{ENDPOINT_LINE}\nnetwork: [red]", "f:1: network: expected `str`, got `array`"),
        (f'{ENDPOINT_LINE}\nnetwork: "r\\0d"', "has control characters in it"),
        (f"{ENDPOINT_LINE}\nname: web", "f:1: is endpoint holdfast-w-e by its spec, and has another name"),
        (
            "kind: migration\nname: web\nspec: {to: r}",
            "f:1: is migration web, which is not the name of an endpoint",
        ),
        ("kind: migration\nname: holdfast-a-1-e\nspec: {to: r}", "hyphens inside a part are doubled, such as holdfast"),
        ("kind: migration\nspec: {to: r}", "f:1: is a migration without a name"),
        ("kind: migration\nname: holdfast-w-e", "f:1: spec: object missing required field `to`"),
        ("kind: migration\nname: holdfast-w-e\nspec: {to: a/b}", "f:1: 'a/b' has a slash in it"),
        ("kind: migration\nname: holdfast-w-e\nspec: {form: r}", "f:3: has an unknown field form"),
        ("kind: migration\nname: holdfast-w-e\nlabels: {a: b}", "has labels, which a migration does not carry"),
        ("hello", "f:1: is not an object"),
        ("{", "f:1:"),
        ("# nothing", "f names no object"),
    ],
)
def test_every_problem_of_a_manifest_names_its_line(text: str, words: str) -> None:
    with pytest.raises(ManifestRefused) as refused:
        read(text, "f", Region())
    assert words in str(refused.value)


def test_a_database_that_does_not_exist_is_named_and_not_created(tmp_path: Path) -> None:
    hand = Hand(tmp_path)
    told = hand("get", "hosts")
    assert (told.exit_code, "its file does not exist" in told.stderr) == (1, True)
    assert list(tmp_path.glob("*.db*")) == []


def test_init_makes_no_folder(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["inventory", "init", "--set", f"inventory.database=sqlite:///{tmp_path}/a/b.db"])
    assert (told.exit_code, f"folder {tmp_path}/a does not exist: create it" in told.stderr) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_have_several_documents(run: Hand) -> None:
    file = run.file("kind: host\nname: r1\n---\n- kind: host\n  name: r2\n---\n# nothing\n---\nkind: host\nname: r3\n")
    assert run("apply", "-f", file).stdout.splitlines() == ["host r1 created", "host r2 created", "host r3 created"]


def test_all_problems_of_a_file_come_at_once_each_at_its_line() -> None:
    text = """\
- kind: host
  name: r1
  spec: {bgp: {ipv4Addres: 192.0.2.1/24}, adresses: [{adress: 192.0.2.1}]}
- kind: hst
  name: r2
---
kind: endpoint
spec:
  node: r1
  ipNetwork: [10.28.0.7]
"""
    with pytest.raises(ManifestRefused) as refused:
        read(text, "f", Region())
    assert str(refused.value).splitlines() == [
        "f:3: has an unknown field ipv4Addres; did you mean ipv4Address?",
        "f:3: has an unknown field adresses; did you mean addresses?",
        f"f:4: names no kind of the inventory: write kind: {', '.join(kind.name for kind in KINDS)}",
        "f:10: has an unknown field ipNetwork; did you mean ipNetworks?",
        "f:7: spec: object missing required field `workload`",
    ]


@pytest.fixture
def no_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of these tests has an address that is not ours: nothing may be sent there."""
    monkeypatch.setattr(InventorySession, "drained", lambda _session: {})


@pytest.mark.usefixtures("no_drains")
@pytest.mark.parametrize(
    ("address", "part"),
    [
        ("0.0.0.0/0", "cannot have 0.0.0.0/0: it is a default route"),
        ("127.0.0.1", "cannot have 127.0.0.1/32: it overlaps the loopback prefix 127.0.0.0/8; choose another address"),
        ("192.0.2.9", "cannot have 192.0.2.9/32: it covers 192.0.2.9, an address of the store"),
    ],
)
def test_apply_refuses_an_address_that_would_cut_hosts_off(run: Hand, address: str, part: str) -> None:
    file = run.file(FLEET.replace("10.28.0.7", address))
    refused = run("apply", "-f", file, "--set", "store.endpoints=[http://192.0.2.9:2379]")
    assert (refused.exit_code, run("get", "hosts").stdout.count("r1")) == (1, 0)
    assert part in refused.stderr


@pytest.mark.usefixtures("no_drains")
def test_apply_accepts_the_address_of_the_store_if_it_is_allowed_exactly(run: Hand) -> None:
    settings = ["--set", "store.endpoints=[http://10.28.0.7:2379]", "--set", "agent.allowed_prefixes=[10.28.0.7/32]"]
    assert run("apply", "-f", run.file(FLEET), *settings).exit_code == 0


def test_a_database_that_does_not_answer_ends_a_command_with_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_arguments: object) -> None:
        raise DatabaseAway("connection refused")

    monkeypatch.setattr(Editor, "objects", refused)
    told = CliRunner().invoke(main, ["get", "hosts", "--set", "inventory.database=sqlite:////tmp/none.db"])
    assert told.exit_code == 3
    assert "connection refused" in told.stderr


@pytest.mark.parametrize(("name", "data", "why"), [("none", None, "No such file"), ("bytes", b"\x9b", "is not text")])
def test_a_file_that_cannot_be_read_is_one_sentence(run: Hand, name: str, data: bytes | None, why: str) -> None:
    if data is not None:
        (run.folder / name).write_bytes(data)
    told = run("apply", "-f", str(run.folder / name))
    assert told.exit_code == 1
    assert f"{name} cannot be read: " in told.stderr
    assert why in told.stderr
    assert "Errno" not in told.stderr


@pytest.mark.parametrize(
    ("words", "note"),
    [(["hosts"], "no hosts in the inventory"), (["endpoints", "--network", "red"], "no endpoints on network red in")],
)
def test_an_empty_list_says_so(run: Hand, words: list[str], note: str) -> None:
    told = run("get", *words)
    assert told.exit_code == 0
    assert note in told.stderr
