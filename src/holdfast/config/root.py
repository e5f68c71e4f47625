"""The whole configuration: one line per section. And the form in which a supervisor hands it to its workers."""

from __future__ import annotations

import msgspec

from holdfast.config.schema.field import Section
from holdfast.config.sections.agent import AgentSettings
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.compaction import CompactionSettings
from holdfast.config.sections.inventory import InventorySettings
from holdfast.config.sections.log import LogSettings
from holdfast.config.sections.paths import PathSettings
from holdfast.config.sections.pulse import PulseSettings
from holdfast.config.sections.server import ServerSettings
from holdfast.config.sections.status import StatusSettings
from holdfast.config.sections.store import StoreSettings


class Config(Section, frozen=True, kw_only=True):
    """Everything that can be configured."""

    paths: PathSettings = PathSettings()
    log: LogSettings = LogSettings()
    store: StoreSettings = StoreSettings()
    server: ServerSettings = ServerSettings()
    inventory: InventorySettings = InventorySettings()
    status: StatusSettings = StatusSettings()
    compaction: CompactionSettings = CompactionSettings()
    runtime: PulseSettings = PulseSettings()
    agent: AgentSettings = AgentSettings()
    balancer: BalancerSettings = BalancerSettings()


def dump(config: Config) -> bytes:
    """The configuration as JSON; `restore` gives back an equal one. It holds no secret, only the names of files."""
    return msgspec.json.encode(config)


def restore(data: bytes) -> Config:
    """Reads what `dump` wrote, also by a version that knows other fields: unknown ones are left out, missing ones take
    their defaults. Raises `msgspec.DecodeError` on anything else."""
    return msgspec.json.decode(data, type=Config)
