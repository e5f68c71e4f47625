"""Marks: the routing table and protocol number by which this host's kernel objects are recognised as the agent's.

They are settings, and the objects outlive the agent. So the marks of earlier runs are remembered beside the journal,
with which they share the life of the kernel's state: an agent that is started with others takes the objects over
instead of treating them as foreign. The file is written before anything is programmed, and names an earlier pair until
nothing in the kernel carries it any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from holdfast.config.sections.linux import LinuxSettings
from holdfast.reconcile import Away
from holdfast.runtime.paths import write_atomically

log = structlog.get_logger(__name__)

_FILE = "agent.marks"


class KernelMark(msgspec.Struct, frozen=True):
    """Mark of the objects of one run."""

    table: int
    protocol: int


def kernel_mark(settings: LinuxSettings) -> KernelMark:
    return KernelMark(settings.table, settings.protocol)


@dataclass(frozen=True, slots=True)
class RememberedMarks:
    path: Path

    @staticmethod
    def beside(runtime: Path) -> RememberedMarks:
        return RememberedMarks(runtime / _FILE)

    def begin(self, current: KernelMark) -> Sequence[KernelMark]:
        """Remember the mark of this run; return those of earlier ones that objects may still carry. Raises `Away`."""
        known = self._read()
        former = [one for one in known if one != current]
        if current not in known:
            self._write([*former, current])
        return former

    def end(self, current: KernelMark) -> None:
        """Forget all others: nothing carries them any more. Raises `Away`."""
        self._write([current])

    def _read(self) -> list[KernelMark]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[KernelMark])
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            # Objects with other marks stay in the kernel then, as foreign ones do.
            log.error("cannot read the marks of earlier runs", file=str(self.path), error=str(error))
            return []

    def _write(self, marks: Sequence[KernelMark]) -> None:
        try:
            write_atomically(self.path, msgspec.json.encode(marks))
        except OSError as error:
            raise Away("the runtime folder", f"cannot write {self.path}: {error.strerror}") from error
