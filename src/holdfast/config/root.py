"""The whole configuration: one line per section. And the form in which a supervisor hands it to its workers."""

from __future__ import annotations

import msgspec

from holdfast.config.schema.field import Section
from holdfast.config.sections.agent import Agent
from holdfast.config.sections.balancer import Balancer
from holdfast.config.sections.compaction import Compaction
from holdfast.config.sections.inventory import Inventory
from holdfast.config.sections.log import Log
from holdfast.config.sections.paths import Paths
from holdfast.config.sections.pulse import Pulse
from holdfast.config.sections.server import Server
from holdfast.config.sections.status import Status
from holdfast.config.sections.store import Store


class Config(Section, frozen=True, kw_only=True):
    """Everything that can be configured."""

    paths: Paths = Paths()
    log: Log = Log()
    store: Store = Store()
    server: Server = Server()
    inventory: Inventory = Inventory()
    status: Status = Status()
    compaction: Compaction = Compaction()
    runtime: Pulse = Pulse()
    agent: Agent = Agent()
    balancer: Balancer = Balancer()


def dump(config: Config) -> bytes:
    """The configuration as JSON; `restore` gives back an equal one. It holds no secret, only the names of files."""
    return msgspec.json.encode(config)


def restore(data: bytes) -> Config:
    """Reads what `dump` wrote, also by a version that knows other fields: unknown ones are left out, missing ones take
    their defaults. Raises `msgspec.DecodeError` on anything else."""
    return msgspec.json.decode(data, type=Config)
