"""The shipped agent on a real kernel, with a fake store, in this process: it can be killed at any moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from holdfast.agent.claims import ClaimKey, Shape
from holdfast.agent.desired.peers import Encapsulation, LocalHost
from holdfast.agent.desired.watcher import SourceWatcher
from holdfast.agent.journal import Journal
from holdfast.agent.reconciler import AgentReconciler, ReconcilerSettings
from holdfast.agent.target import JournaledTarget
from holdfast.config.sections.linux import LinuxSettings
from holdfast.model.base.time import Duration
from holdfast.model.calico.host import HOST, Bgp, Host, HostSpec
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.context import Context
from holdfast.runtime.daemon.vitals import Vitals
from holdfast.runtime.decision_log import DecisionLog
from holdfast.runtime.metrics import WorkerMetrics
from holdfast.runtime.reconciler.place import LoopTimings
from holdfast.runtime.store_memory import StoreMemory
from holdfast.store.api import Put
from holdfast.testing import FakeStore
from tests.agent.dataplane.linux.harness import HostHarness
from tests.agent.harness import BOOT, ME, REGION, UNLIMITED, Fleet, inline

PATIENCE_S = 60
_TURNS = 200
FIVE_MINUTES = Duration(minutes=5)


class Machine:
    """One host. Everything here outlives its agent: the kernel, the folder, and the store."""

    def __init__(self, site: HostHarness, folder: Path) -> None:
        self.site = site
        self._folder = folder
        self.life: asyncio.Task[None] | None = None
        """The last run of the agent."""
        self.store = FakeStore()
        self.fleet = Fleet(self.store)
        self.fleet.name_it()

    @contextlib.asynccontextmanager
    async def agent(
        self,
        audit: Duration = FIVE_MINUTES,
        pace: LoopTimings | None = None,
        *,
        direct: bool = False,
        linux: LinuxSettings | None = None,
        stores: Sequence[str] = (),
    ) -> AsyncIterator[AgentReconciler]:
        """One run of the agent; at the end of the block it is killed without a chance to clean up."""
        with self.site.dataplane(linux) as dataplane, contextlib.closing(self._journal()) as journal:
            clock = SystemClock()
            here = LocalHost(ME, Encapsulation.NEVER if direct else Encapsulation.ALWAYS)
            target = JournaledTarget(journal, dataplane)
            watcher = SourceWatcher(
                "region",
                self.store.client("agent"),
                REGION,
                here,
                clock,
                blocked_by=dataplane.blocked_by,
                owner_of=target.owner_of,
            )
            decisions = DecisionLog(self._folder / "decisions", "agent")
            context = Context(clock, Vitals(clock), decisions, WorkerMetrics())
            memories = {"region": StoreMemory(self._folder, "region")}
            settings = ReconcilerSettings(UNLIMITED, pace=pace or LoopTimings(audit=audit), stores=lambda: stores)
            reconciler = AgentReconciler(ME, [watcher], target, memories, context, settings, inline)
            life = self.life = asyncio.create_task(reconciler.run(asyncio.Event()))
            try:
                yield reconciler
            finally:
                life.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await life
                decisions.close()

    def _journal(self) -> Journal:
        return Journal.open(self._folder / "journal", BOOT)

    async def holds(self) -> dict[ClaimKey, Shape]:
        """Our objects in the kernel as another reader finds them, except the rules, which are always there."""
        with self.site.dataplane() as reader:
            own = reader.describe().own
            return {key: shape for key, shape in (await reader.read()).items() if key not in own}


async def settled(reconciler: AgentReconciler) -> None:
    """Wait until the agent has compared everything and has nothing left to do."""
    await until(lambda: reconciler.loop.passes > 0)
    await asyncio.sleep(0.2)
    for _ in range(_TURNS):  # what was written is on its way to it: while this process is not let run, it does not move
        await asyncio.sleep(0)
    await until(lambda: not reconciler.loop.backlog())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 -- the condition is of the code under test, which has no event for it
            await asyncio.sleep(0.01)


def joins_6(name: str, number: int) -> Put:
    """A host that is reached by IPv6 alone."""
    spec = HostSpec(
        bgp=Bgp(ipv6_address=f"2001:db8::{number:x}/128"),
        tunnel_ipv6=f"fd99::{number:x}",
        tunnel_mac_v6=f"66:00:00:00:06:{number:02x}",
    )
    return Put(HOST.key(REGION, name), HOST.encode(Host.of(name, spec, uid=f"uid-{name}")))
