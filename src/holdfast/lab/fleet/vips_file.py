"""Balancer dataplane of the lab: VIPs in a file, so that they outlive the balancer as a kernel's would.

One balancer writes the file; the lab's client reads it before every request and sends its flows where the programmed
table says. The file counts every change and, per entry, how often its flows were ended, so that a client that reads
late misses neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.balancer.dataplane.api import Counters, VipDataplaneInfo
from holdfast.balancer.maglev.table import ALGORITHM
from holdfast.balancer.vip import (
    NO_BACKEND,
    BackendEntry,
    Value,
    Vip,
    VipKey,
    VipSettings,
    backend_from,
    shown,
    vip_from,
)
from holdfast.config.sections.frontend import DEFAULT_TABLE_SIZE
from holdfast.reconcile import Away, Change
from holdfast.runtime.paths import write_atomically
from holdfast.testing.fakes.dataplane import FakeDataplane


class _Vip(msgspec.Struct):
    """A VIP in the file, with its entries by ADDRESS:PORT."""

    sticky: bool | None = False
    table_size: int = DEFAULT_TABLE_SIZE
    algorithm: int = ALGORITHM
    entries: dict[str, BackendEntry] = {}


class _Content(msgspec.Struct):
    writes: int = 0
    vips: dict[str, _Vip] = {}
    ends: dict[str, dict[str, int]] = {}


@dataclass
class VipsFile(FakeDataplane):
    """Dataplane whose objects are in a file; its flows belong to the process that has it open."""

    path: Path = Path("vips.json")
    writes: int = 0
    """Changes made to the file so far."""
    ends: dict[VipKey, int] = field(default_factory=dict)
    """Times that the flows of an entry were ended."""
    _loaded: bytes = b""

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        self.load()
        return await super().read(vips)

    async def apply(self, changes: Sequence[Change[VipKey, Value]]) -> Sequence[str | None]:
        self.load()
        answers = await super().apply(changes)
        self.writes += answers.count(None)
        self._save()
        return answers

    async def counters(self) -> Mapping[VipKey, Counters]:
        self.load()
        return await super().counters()

    def describe(self) -> VipDataplaneInfo:
        return VipDataplaneInfo("lab", self.live)

    def load(self) -> None:
        """Read the file, and drop the flows that were ended since it was last read."""
        try:
            content = self.path.read_bytes()
            if content == self._loaded:
                return
            self._replace_objects(msgspec.json.decode(content, type=_Content))
        except FileNotFoundError:
            self._replace_objects(_Content())
            content = b""
        except (OSError, ValueError) as error:
            raise Away("dataplane", f"{self.path}: {error}. To start with an empty one: delete the file") from error
        self._loaded = content

    def _replace_objects(self, content: _Content) -> None:
        objects: dict[VipKey, Value] = {}
        for name, vip in content.vips.items():
            objects[VipKey(vip_from(name))] = VipSettings(vip.sticky, vip.table_size, vip.algorithm)
            objects |= {VipKey(vip_from(name), backend_from(one)): entry for one, entry in vip.entries.items()}
        ends = {
            VipKey(vip_from(name), backend_from(one)): n for name, of in content.ends.items() for one, n in of.items()
        }
        for key in ends:
            if ends[key] > self.ends.get(key, 0):
                super()._kill(key)
        self.objects, self.ends, self.writes = objects, ends, content.writes

    def _kill(self, key: VipKey) -> None:
        super()._kill(key)
        if key.backend != NO_BACKEND:
            self.ends[key] = self.ends.get(key, 0) + 1

    def _save(self) -> None:
        content = _Content(self.writes)
        for key, value in sorted(self.objects.items(), key=lambda one: one[0]):
            vip = content.vips.setdefault(str(key.vip), _Vip())
            if isinstance(value, VipSettings):
                vip.sticky, vip.table_size, vip.algorithm = value.sticky, value.table_size, value.algorithm
            else:
                vip.entries[shown(key.backend)] = value
        for key, count in sorted(self.ends.items()):
            content.ends.setdefault(str(key.vip), {})[shown(key.backend)] = count
        encoded = msgspec.json.format(msgspec.json.encode(content), indent=2)
        try:
            write_atomically(self.path, encoded)
        except OSError as error:
            raise Away("dataplane", f"{self.path} cannot be written ({error.strerror})") from error
        self._loaded = encoded
