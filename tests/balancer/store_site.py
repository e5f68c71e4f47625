"""One balancer on virtual time that takes its services from the store of a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

from holdfast.balancer.vip import shown
from holdfast.balancer.worker import BalancerJob
from holdfast.config import Config
from holdfast.config.sections.balancer import BalancerDataplaneSettings, BalancerSettings
from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.config.sections.paths import PathSettings
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.model.base.region import Region
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.paths import RolePaths
from holdfast.testing import FakeClient, Node, World, simulate
from holdfast.testing.fakes.dataplane import FakeDataplane
from holdfast.testing.sim.nodes import WALL_START
from tests.balancer.harness import Truth, TruthfulProber

REGION = Region("")


async def at_once(call: Callable[[], None]) -> None:
    """Write to the disk in the loop: virtual time has no threads."""
    call()


class StoreSite:
    """One balancer that takes its frontends from the world's store. Dataplane and state folder outlive it."""

    def __init__(self, world: World, node: Node, folder: Path, kind: Literal["nftables", "vpp"] = "nftables") -> None:
        self.world = world
        self.node = node
        self.dataplane = FakeDataplane()
        self.truth = Truth()
        self._folder = folder
        self._config = Config(
            balancer=BalancerSettings(source="etcd", name=node.name, dataplane=BalancerDataplaneSettings(kind=kind)),
            paths=PathSettings(state=str(folder / "state"), runtime=str(folder / "run")),
        )

    def start(self, *, store_away: bool = False) -> None:
        paths = RolePaths("balancer", self._folder / "run", self._folder / "state")
        paths.prepare()
        spec = Spec("vips", "")
        board = Board.create(paths.board, ["supervisor", "vips", "vips/record"])
        worker = Worker(spec, "balancer", paths, self._config, self.node.clock, board)
        self.client: FakeClient = self.node.store()
        if store_away:
            self.client.link.cut()
        prober = TruthfulProber(self.node, self.truth)
        self.job = BalancerJob(worker, self.dataplane, prober, self.client, at_once)
        self.node.run(self.job.run())

    async def put(self, kind: Any, name: Any, value: Any) -> None:
        raw = value if isinstance(value, bytes) else kind.encode(value)
        await self.writer.put(kind.key(REGION, name), raw)

    async def drop(self, kind: Any, name: Any) -> None:
        await self.writer.delete(kind.key(REGION, name))

    async def fill(self, frontends: int = 1, backends: int = 2, epoch: int = 1) -> None:
        """Write services, then the identity, as a leader does."""
        self.writer = self.world.node("operator").store()
        await self.put(HEALTH_CHECK, "web", HealthCheck(type="tcp"))
        for n in range(1, backends + 1):
            await self.put(BACKEND, f"b{n}", Backend(address=f"10.0.0.{n}", port=80, healthcheck=("web",)))
        pool = Pool(backends={f"b{n}": PoolMember() for n in range(1, backends + 1)})
        for n in range(1, frontends + 1):
            await self.put(FRONTEND, f"f{n}", Frontend(address=f"192.0.2.{n}", port=80, pools=(pool,)))
        await self.put(IDENTITY, "identity", Identity("fleet-a", epoch))

    async def command(self, do_: str, /, **args: Any) -> Any:
        """Ask the balancer, and return its answer or its refusal."""
        handler = self.job._commands.handlers()[do_]
        try:
            return await handler(Request(do_, args), Who(1000, 1, "ada"))
        except Declined as refusal:
            return str(refusal)

    async def disable(self, backend: str) -> str:
        return str(await self.command("backend", do="disable", name=backend, reason="new disk"))

    async def status(self) -> dict[str, Any]:
        found = await self.command("balancer")
        assert isinstance(found, dict)
        return found

    def served(self) -> dict[str, int]:
        return {f"{key.vip} {shown(key.backend)}": one.weight for key, one in sorted(self.dataplane.entries.items())}


BOTH = {"192.0.2.1:80/tcp 10.0.0.1:80": 100, "192.0.2.1:80/tcp 10.0.0.2:80": 100}
Story = Callable[[StoreSite], Coroutine[Any, Any, None]]


def play(story: Story, folder: Path, seed: int = 1) -> None:
    async def scenario(world: World) -> None:
        await story(StoreSite(world, world.node("lb"), folder))

    simulate(seed, scenario)


def intent(what: IntentKind, target: ScopeKind, name: str) -> Intent:
    return Intent(what=what, scope=Scope(target, name), who="ada", why="new disk", since=WALL_START)
