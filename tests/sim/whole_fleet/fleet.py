"""A simulated fleet: servers, agents and balancers on machines of their own, with the configuration that they ship with
but for the timings, one etcd of three members, and one inventory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.agent.worker import WORKERS as AGENT_WORKERS
from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.worker import WORKERS as BALANCER_WORKERS
from holdfast.config.root import Config
from holdfast.config.sections.agent import AgentDataplaneSettings, AgentSettings
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.inventory import InventorySettings
from holdfast.config.sections.paths import PathSettings
from holdfast.config.sections.server import ServerSettings
from holdfast.config.sections.store import StoreSettings
from holdfast.model.base.address import address_order
from holdfast.model.base.region import Region
from holdfast.model.base.time import seconds
from holdfast.server.workers import WORKERS as SERVER_WORKERS
from holdfast.server.workers import cells
from holdfast.testing import World
from holdfast.testing.sim.daemon import SimDaemon
from holdfast.testing.sim.machine import SimMachine
from tests.balancer.harness import Truth
from tests.sim.election_invariants import InvariantBroken
from tests.sim.whole_fleet.witness import Asked, WitnessedKernel, WitnessedTable

REGION = Region("sim")
MEMBERS = tuple(f"http://10.255.0.{number}:2379" for number in (1, 2, 3))
ALWAYS = BackendId(*address_order("198.51.100.1"), 80)
"""The backend b0, which every frontend has and which always answers."""
QUICK = ServerSettings(ttl=seconds(6), renew_every=seconds(1), renew_deadline=seconds(4), rpc_timeout=seconds(2))


@dataclass
class SimFleet:
    """Everything that lives on machines."""

    world: World
    folder: Path
    machines: dict[str, SimMachine] = field(default_factory=dict)
    kernels: dict[str, WitnessedKernel] = field(default_factory=dict)
    tables: dict[str, WitnessedTable] = field(default_factory=dict)
    servers: dict[str, SimDaemon] = field(default_factory=dict)
    agents: dict[str, SimDaemon] = field(default_factory=dict)
    balancers: dict[str, SimDaemon] = field(default_factory=dict)
    truth: Truth = field(default_factory=Truth)
    """Backends as probes find them, from every balancer."""
    asked: Asked = field(default_factory=Asked)

    @property
    def database(self) -> str:
        return f"sqlite:///{self.folder}/inventory.db"

    @property
    def daemons(self) -> list[SimDaemon]:
        return [*self.servers.values(), *self.agents.values(), *self.balancers.values()]

    def add_server(self, name: str) -> None:
        machine = self._machine(name)
        config = self._config(machine, "server", server=QUICK, inventory=InventorySettings(database=self.database))
        self.servers[name] = SimDaemon(machine, "server", SERVER_WORKERS, config, cells(SERVER_WORKERS))

    def add_agent(self, name: str) -> None:
        machine = self._machine(name)
        settings = AgentSettings(
            host=name,
            dataplane=AgentDataplaneSettings(kind="memory"),
            encapsulation="always",
            report_interval=seconds(5),
            report_ttl=seconds(20),
            verify_interval=seconds(30),
        )
        self.agents[name] = SimDaemon(machine, "agent", AGENT_WORKERS, self._config(machine, "agent", agent=settings))

    def add_balancer(self, name: str) -> None:
        machine = self._machine(name)
        settings = BalancerSettings(source="etcd", startup_min_delay=seconds(1), startup_max_delay=seconds(5))
        vips = [spec for spec in BALANCER_WORKERS if spec.name == VIPS_WORKER]
        self.balancers[name] = SimDaemon(
            machine, "balancer", vips, self._config(machine, "balancer", balancer=settings)
        )

    def start(self) -> None:
        for daemon in self.daemons:
            daemon.start()

    def decisions(self, last: int) -> str:
        """Return the last lines of all decision logs, for a failing seed."""
        files = self.folder.glob("*/*/state/decisions/*")
        lines = [f"{file.parts[-5]} {line}" for file in files for line in file.read_text("utf-8").splitlines()]
        return "\n".join(sorted(lines, key=lambda line: line.partition(" ")[2])[-last:])

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.close()

    def _machine(self, name: str) -> SimMachine:
        kernel = WitnessedKernel(asked=self.asked, fail=lambda why: self._broken(f"kernel of {name}: {why}"))
        vips = WitnessedTable(asked=self.asked, always=ALWAYS, fail=lambda why: self._broken(f"table of {name}: {why}"))
        self.kernels[name], self.tables[name] = kernel, vips
        made = self.machines[name] = SimMachine(self.world, name, self.folder, kernel=kernel, vips=vips)
        return made

    def _broken(self, what: str) -> None:
        self.world.fail("the witness", InvariantBroken(what))

    def _config(self, machine: SimMachine, role: str, **sections: object) -> Config:
        folder = machine.folder / role
        paths = PathSettings(runtime=str(folder / "run"), state=str(folder / "state"))
        return Config(paths=paths, store=StoreSettings(endpoints=MEMBERS, region="sim"), **sections)  # type: ignore[arg-type]
