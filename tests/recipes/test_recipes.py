"""The recipes of docs/developing/index.md, each followed in a scratch copy of the sources, step by step."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house import repository

PAGE = repository.text("docs/developing/index.md")


class Scratch:
    """A copy of the sources that a recipe changes. Its code is found before that of the repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(repository.ROOT / "src" / "holdfast", root / "src" / "holdfast")
        shutil.copytree(repository.ROOT / "docs", root / "docs")
        for name in ("house", "agent/dataplane", "balancer/dataplane"):
            shutil.copytree(repository.ROOT / "tests" / name, root / "tests" / name)

    def add(self, path: str, text: str) -> None:
        file = self.root / "src" / "holdfast" / path
        assert not file.exists()
        file.write_text(text, encoding="utf-8")

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{path} has {old!r} {text.count(old)} times"
        file.write_text(text.replace(old, new), encoding="utf-8")

    def source(self, path: str, old: str, new: str) -> None:
        self.edit(f"src/holdfast/{path}", old, new)

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join((str(self.root / "src"), str(self.root)))
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-P", *words]
        return subprocess.run(
            command, cwd=self.root, env=environment, input=given, capture_output=True, text=True, check=False
        )

    def proves(self, code: str) -> None:
        done = self.run("-", given=code)
        assert done.returncode == 0, done.stderr

    def holdfast(self, *words: str) -> str:
        done = self.run("-m", "holdfast.cli", *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Scratch]:
    yield Scratch(tmp_path / "scratch")
    shutil.rmtree(tmp_path / "scratch")


def test_every_recipe_for_a_change_is_followed_here() -> None:
    recipes = {line.removeprefix("## Add a ") for line in PAGE.splitlines() if line.startswith("## Add a ")}
    by_other_means = {"dependency", "test that needs the machine", "row to the fault matrix"}
    assert recipes - by_other_means == {"gate", "setting", "field to an object", "health check", "dataplane", "scene"}


SSH = '''
"""ssh: passes when the server greets with the name of the protocol."""

from holdfast.balancer.probing.checks import Carrier, CheckType, ProbeVerdict
from holdfast.balancer.probing.messages import ProbeCode


class SshConversation:
    def start(self):
        return b""

    def feed(self, data):
        greets = data.startswith(b"SSH-")
        return ProbeVerdict(greets, ProbeCode.L7OK if greets else ProbeCode.L7RSP)

    def timed_out(self):
        return ProbeVerdict(False, ProbeCode.L7TOUT)


CHECK = CheckType(Carrier.STREAM, lambda target, files: SshConversation)
'''


def test_a_health_check_is_one_module_and_a_name(scratch: Scratch) -> None:
    scratch.add("balancer/probing/checks/ssh.py", SSH)
    scratch.source("config/sections/healthcheck.py", '"dns", "grpc"],', '"dns", "grpc", "ssh"],')
    (scratch.root / "holdfast.yaml").write_text(
        "balancer:\n"
        "  healthchecks: {shell: {type: ssh, port: 22}}\n"
        "  backends: {one: {address: 192.0.2.1, healthcheck: shell}}\n"
    )
    scratch.holdfast("config", "check", "holdfast.yaml")
    scratch.proves(
        "from holdfast.balancer.probing.checks import registry\n"
        "from holdfast.config.output.reference import reference\n"
        "conversation = registry()['ssh'].prepare(None, None)()\n"
        "assert conversation.feed(b'SSH-2.0-x').passed and not conversation.feed(b'HTTP/1.1 200').passed\n"
        "assert '`ssh`' in reference()\n"
    )


GATE = '''
"""Night gate: holds deletes at night, when nobody is there to see what they do."""

from holdfast.reconcile.change import Op
from holdfast.reconcile.gate import Closed, Reason


class NightReason(Reason):
    NIGHT = "it is night, and nobody looks"


class NightGate:
    def __init__(self, night):
        self.night = night

    def judge(self, change, tally, have, now):
        if change.op is Op.DELETE and self.night[0] <= now < self.night[1]:
            return Closed("night", NightReason.NIGHT, self.night[0], "the morning, or holdfast resume")
        return None
'''


def test_a_gate_is_one_module_a_place_and_a_text(scratch: Scratch) -> None:
    scratch.add("reconcile/night.py", GATE)
    always = "NightGate((self._clock.now(), self._clock.now()))"
    scratch.source(
        "agent/reconciler.py",
        "                self.identity_gate,\n                self.sync_gate,\n",
        f"                self.identity_gate,\n                {always},\n                self.sync_gate,\n",
    )
    scratch.source(
        "agent/reconciler.py",
        "from holdfast.reconcile import ",
        "from holdfast.reconcile.night import NightGate\nfrom holdfast.reconcile import ",
    )
    scratch.proves(
        "import holdfast.agent.reconciler\n"
        "from holdfast.model.base.time import Instant\n"
        "from holdfast.reconcile import Change, Op, Owned, one_kind, plan\n"
        "from holdfast.reconcile.night import NightGate\n"
        "gate = NightGate((Instant(100), Instant(200)))\n"
        "gone = Change(Op.DELETE, 'r1', Owned('x', 'here', 1), None)\n"
        "def made(at): return plan([gone], [gate], {'route': 1}, Instant(at), one_kind('route'))\n"
        "assert [closed.gate for _, closed in made(150).held] == ['night'] and made(150).ready == []\n"
        "assert made(250).ready == [gone]\n"
    )
    without_text = concepts(scratch)
    scratch.edit(
        "docs/gate_table.py",
        '    "leader": GateText(',
        '    "night": GateText("agent", "deletes at night", "the morning"),\n    "leader": GateText(',
    )
    with_text = concepts(scratch)
    assert without_text.returncode == 1, "a gate without a text was not noticed"
    assert with_text.returncode == 0, with_text.stderr
    assert "it is night, and nobody looks" in scratch.run("-m", "docs.gate_table").stdout


def concepts(scratch: Scratch) -> subprocess.CompletedProcess[str]:
    test = "test_every_gate_has_a_text_and_every_text_a_gate"
    return scratch.run("-c", f"from tests.house import test_concepts as page; page.{test}()")


SETTING = """    grace: Annotated[
        timedelta,
        FieldDoc(
            "Time that a new host has for its first report.",
            small="a host that boots slowly counts as lost",
            big="a host that never came up is noticed late",
            least=timedelta(seconds=1),
            most=timedelta(hours=1),
        ),
    ] = timedelta(minutes=2)
    warn_every:"""


def test_a_setting_is_one_field(scratch: Scratch) -> None:
    scratch.source("config/sections/status.py", "    warn_every:", SETTING)
    (scratch.root / "holdfast.yaml").write_text("status: {grace: 90s}\n")
    shown = scratch.holdfast("config", "show", "--config", "holdfast.yaml")
    assert shown.split("status.grace")[1].split()[0] == "1m30s"
    (scratch.root / "holdfast.yaml").write_text("status: {grace: 2h}\n")
    refused = scratch.run("-m", "holdfast.cli", "config", "check", "holdfast.yaml")
    assert refused.returncode != 0
    assert "more than 1h: a host that never came up is noticed late" in refused.stderr
    assert "never came up" in scratch.run("-m", "holdfast.config.output.reference").stdout
    assert "grace" in scratch.run("-m", "holdfast.config.output.sample").stdout


def test_a_field_of_an_object_is_one_field_of_its_struct(scratch: Scratch) -> None:
    scratch.source(
        "model/fleet/network.py",
        "    description: str | None = None\n",
        "    description: str | None = None\n    owner: str = ''\n",
    )
    scratch.source(
        "model/fleet/network.py",
        '        Column("DESCRIPTION",',
        '        Column("OWNER", lambda _, network: network.owner, wide=True),\n        Column("DESCRIPTION",',
    )
    scratch.proves(
        "from holdfast.inventory.manifest.read import read\n"
        "from holdfast.inventory.manifest.write import described\n"
        "from holdfast.model.base.region import Region\n"
        "from holdfast.model.fleet.network import NETWORK, Network\n"
        "text = '{kind: network, name: red, spec: {prefixes: [10.0.0.0/16], owner: web}}'\n"
        "(wanted,) = read(text, 'a.yaml', Region('r'))\n"
        "network = Network(prefixes=('10.0.0.0/16',), owner='web')\n"
        "assert described(NETWORK, 'red', network)['spec']['owner'] == 'web'\n"
        "old = NETWORK.encode(Network(prefixes=('10.0.0.0/16',)))\n"
        "assert b'owner' not in old, 'what is not set is not written, so that older versions see no difference'\n"
        "assert NETWORK.decode(NETWORK.key(Region('r'), 'red'), old).owner == ''\n"
    )


DATAPLANE = '''
"""echo: a dataplane that prints what it is told, and keeps it in memory."""

from holdfast.balancer.dataplane.api import VipDataplaneInfo
from holdfast.balancer.dataplane.dry_run import DryRunDataplane


class EchoDataplane(DryRunDataplane):
    async def apply(self, changes):
        for change in changes:
            print(change.op.name, change.key)
        return await super().apply(changes)

    def describe(self):
        return VipDataplaneInfo("echo")
'''
PROOF_OF_DATAPLANE = """
import asyncio, pathlib
from holdfast.balancer.dataplane import open as opening
from holdfast.config.sections.balancer import BalancerDataplaneSettings
from tests.balancer.dataplane.conformance import CASES
settings = BalancerDataplaneSettings(kind="echo")
assert opening.refusal(settings) is None and opening.canonical_form(settings) is not None
for case in CASES:
    asyncio.run(case(opening.open_dataplane(settings, pathlib.Path("."))))
"""


def test_a_dataplane_is_one_package_a_name_and_a_case_of_each_choice(scratch: Scratch) -> None:
    scratch.add("balancer/dataplane/echo.py", DATAPLANE)
    scratch.source(
        "config/sections/balancer.py", '["nftables", "vpp", "dry-run"],', '["nftables", "vpp", "dry-run", "echo"],'
    )
    opened = '        case "dry-run":\n            return {}\n'
    for old, new in (("DryRunDataplane()", "EchoDataplane()"), ("as_wanted", "as_wanted")):
        case = opened.format(old)
        scratch.source(
            "balancer/dataplane/open.py", case, case + case.format().replace("dry-run", "echo").replace(old, new)
        )
    scratch.source(
        "balancer/dataplane/open.py",
        "from holdfast.balancer.dataplane.nftables import",
        "from holdfast.balancer.dataplane.echo import EchoDataplane\nfrom holdfast.balancer.dataplane.nftables import",
    )
    (scratch.root / "holdfast.yaml").write_text("balancer: {dataplane: {kind: echo}}\n")
    scratch.holdfast("config", "check", "holdfast.yaml")
    scratch.proves(PROOF_OF_DATAPLANE)


HOST_DATAPLANE = '''
"""echo: a dataplane that prints what it is told, and keeps it in a file."""

from holdfast.agent.dataplane.file import FileDataplane


class EchoDataplane(FileDataplane):
    async def apply(self, changes):
        for change in changes:
            print(change.op.name, change.key)
        return await super().apply(changes)
'''
PROOF_OF_HOST_DATAPLANE = """
import asyncio, pathlib, tempfile
from holdfast.agent.dataplane.open import open_dataplane
from holdfast.config.sections.agent import AgentDataplaneSettings, AgentSettings
from tests.agent.dataplane.conformance import CASES, Ground
settings = AgentSettings(dataplane=AgentDataplaneSettings(kind="echo"))
async def prove(case):
    plane = open_dataplane(settings, lambda family: None, pathlib.Path(tempfile.mkdtemp(dir=".")))
    await plane.read()
    await case(Ground(plane))
for case in CASES:
    asyncio.run(prove(case))
"""


def test_a_dataplane_of_the_agent_is_one_package_a_name_and_a_case(scratch: Scratch) -> None:
    scratch.add("agent/dataplane/echo.py", HOST_DATAPLANE)
    scratch.source("config/sections/agent.py", 'Literal["linux", "memory"],', 'Literal["linux", "memory", "echo"],')
    scratch.source(
        "agent/dataplane/open.py",
        '        case "linux":\n',
        '        case "echo":\n'
        "            from holdfast.agent.dataplane.echo import EchoDataplane\n\n"
        '            return EchoDataplane(runtime / "echo.json")\n'
        '        case "linux":\n',
    )
    scratch.proves(PROOF_OF_HOST_DATAPLANE)


SCENE = '''
async def nothing(lab: Lab, say: Say, seconds: float) -> None:
    """Break nothing at all, and look whether anything suffers."""
    (lab.folder / "looked").touch()
    await until("the look to be over", lambda: (lab.folder / "looked").exists())
    say("nothing happened")
    promise(seconds > 0, "a scene lasts a moment")


SCENES: Mapping[str, Scene] = {
    "nothing": Scene(nothing, promise="nothing suffers from nothing", limit="0 of everything"),
'''
PROOF_OF_SCENE = """
import asyncio, pathlib
from holdfast.cli.lab.command import break_it
from holdfast.lab.scenes.registry import SCENES
from holdfast.lab.scenes.stage import Broken, Lab
assert "nothing                        Break nothing at all" in break_it.epilog
lab, said = Lab(pathlib.Path(".")), []
asyncio.run(SCENES["nothing"].play(lab, said.append, 1.0))
assert said == ["nothing happened"]
try:
    asyncio.run(SCENES["nothing"].play(lab, said.append, 0.0))
except Broken as broken:
    assert "the promise was broken" in str(broken)
else:
    raise AssertionError("a broken promise was not noticed")
"""


def test_a_scene_is_one_coroutine_and_an_entry(scratch: Scratch) -> None:
    scratch.source("lab/scenes/status.py", "\nSCENES: Mapping[str, Scene] = {\n", SCENE)
    scratch.proves(PROOF_OF_SCENE)
