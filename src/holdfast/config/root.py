"""The whole configuration, one line per section, and its encoding for the workers of a supervisor."""

from __future__ import annotations

import zlib

import msgspec

from holdfast.config.schema.field import Section
from holdfast.config.sections.agent import AgentSettings
from holdfast.config.sections.balancer import BalancerSettings
from holdfast.config.sections.compaction import CompactionSettings
from holdfast.config.sections.control import ControlSettings
from holdfast.config.sections.http import HttpSettings
from holdfast.config.sections.inventory import InventorySettings
from holdfast.config.sections.log import LogSettings
from holdfast.config.sections.paths import PathSettings
from holdfast.config.sections.pulse import PulseSettings
from holdfast.config.sections.server import ServerSettings
from holdfast.config.sections.status import StatusSettings
from holdfast.config.sections.store import StoreSettings


class Config(Section, frozen=True, kw_only=True):
    """All settings."""

    paths: PathSettings = PathSettings()
    control: ControlSettings = ControlSettings()
    log: LogSettings = LogSettings()
    http: HttpSettings = HttpSettings()
    store: StoreSettings = StoreSettings()
    server: ServerSettings = ServerSettings()
    inventory: InventorySettings = InventorySettings()
    status: StatusSettings = StatusSettings()
    compaction: CompactionSettings = CompactionSettings()
    runtime: PulseSettings = PulseSettings()
    agent: AgentSettings = AgentSettings()
    balancer: BalancerSettings = BalancerSettings()


def dump(config: Config) -> bytes:
    """Encode the configuration as JSON. It holds no secret, only the names of files."""
    return msgspec.json.encode(config)


def restore(data: bytes) -> Config:
    """Decode what `dump` wrote, also in a version with other fields: unknown ones are ignored, missing ones take their
    defaults. Raises `msgspec.DecodeError` on anything else."""
    return msgspec.json.decode(data, type=Config)


def digest(config: Config) -> int:
    """A number that differs for different configurations; a worker shows it on the board."""
    return zlib.crc32(dump(config))
