"""A process that is killed at every step: `python -m tests.agent.journal.killed_process FOLDER SCENE`.

For each step of the scene, and each moment of it (before, halfway through a write, after), a child runs the scene in a
folder of its own and is ended by SIGKILL there. What it leaves is for the test to judge: the journal, a kernel made of
files, and how many calls of the journal had returned. The last child is not killed, and runs to the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

from holdfast.agent.journal import Journal, compaction
from holdfast.agent.journal.files import Files
from holdfast.agent.journal.frames import EntryKind, JournalEntry
from tests.agent.journal.harness import BOOT, FRAMES, WHOLE, inline

MOMENTS = ("before", "halfway", "after")
FOUND: dict[str, bytes | None] = {
    "absent": None,
    "torn": WHOLE[:-5],
    "damaged": WHOLE[: len(FRAMES[0]) + 30] + b"?" + WHOLE[len(FRAMES[0]) + 31 :],
}
"""Contents when the scene begins."""


def _entries(text: str) -> tuple[JournalEntry, ...]:
    ops = {"+": EntryKind.ADD, "-": EntryKind.DELETING, ".": EntryKind.DONE}
    return tuple(JournalEntry(ops[word[0]], word[1:2].encode(), word[2:].encode()) for word in text.split())


CALLS = tuple(
    map(_entries, ("+a1 +b1 +c1", "+b2", "-a1", ".a", "+d1 -b2", "+e1", ".b -c1", ".c +a3", "-a3 -d1", ".a .d"))
)
"""Batches: kind, key, object. The journal is opened again after those that run during a compaction."""
DURING = (4, 5, 6)


class Death:
    """Counts steps, and kills this process at one of them."""

    def __init__(self, step: int, moment: str) -> None:
        self._left = step
        self._moment = moment

    def comes(self, moment: str) -> bool:
        return self._left == 0 and moment == self._moment

    def step(self) -> None:
        self._left -= 1

    @staticmethod
    def now() -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")


class Deadly(Files):
    """Every method of `Files`, and any of them may be the last."""

    def __init__(self, death: Death) -> None:
        self._death = death

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or name not in vars(Files):
            return found
        death = super().__getattribute__("_death")

        def step(*arguments: Any) -> Any:
            if death.comes("before"):
                death.now()
            if death.comes("halfway"):
                if name == "write":
                    fd, data = arguments
                    found(fd, data[: len(data) // 2])
                death.now()
            result = found(*arguments)
            if death.comes("after"):
                death.now()
            death.step()
            return result

        return step


class Kernel:
    """Objects that outlive the process: one file each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def apply(self, entries: tuple[JournalEntry, ...]) -> None:
        for op, key, body in entries:
            place = self.folder / key.decode()
            if op is EntryKind.ADD:
                place.write_bytes(body)
            elif op is EntryKind.DELETING:
                place.unlink(missing_ok=True)


class Scene:
    def __init__(self, folder: Path, death: Death) -> None:
        self._journal_path = folder / "journal"
        self._files = Deadly(death)
        self._kernel = Kernel(folder / "kernel")
        self._returned = os.open(folder / "returned", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._journal = Journal.open(self._journal_path, BOOT, files=self._files)

    async def play(self) -> None:
        for number in range(DURING[0]):
            self._call(number)
        task = asyncio.create_task(self._journal.compact(inline))
        for number in DURING:
            await asyncio.sleep(0)
            self._call(number)
        await task
        self._journal.close()
        self._journal = Journal.open(self._journal_path, BOOT, files=self._files)
        for number in range(DURING[-1] + 1, len(CALLS)):
            self._call(number)
        self._journal.close()

    def _call(self, number: int) -> None:
        self._journal.write(CALLS[number])
        os.write(self._returned, b".")
        self._kernel.apply(CALLS[number])


def _child(folder: Path, step: int, moment: str) -> int:
    pid = os.fork()
    if pid == 0:
        asyncio.run(Scene(folder, Death(step, moment)).play())
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main(folder: Path, scene: str) -> int:
    compaction.SLICE = 1
    for step in count():
        for moment in MOMENTS:
            place = folder / f"{step:03}-{moment}"
            place.mkdir()
            if (found := FOUND[scene]) is not None:
                (place / "journal").write_bytes(found)
            code = _child(place, step, moment)
            if moment == "before" and code == 0:
                return 0
            if code not in (0, -signal.SIGKILL):
                return 1
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
