"""Wishes: what an operator asked a worker for at run time, in a small file of the state folder.

Written before it takes effect, so that a restart does not undo what a person decided. A file that cannot be read is
not an empty one: somebody may have said pause.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from holdfast.config.schema.scalars import duration
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.paths import RolePaths, write_atomically


class WorkerIntent(msgspec.Struct, frozen=True):
    """Something an operator asked for. Wall-clock times: they are read after a reboot, too."""

    who: str
    why: str
    at: datetime
    until: datetime | None = None

    @property
    def lasting(self) -> str:
        """How a sentence about it goes on."""
        return "" if self.until is None else f" until {self.until:%H:%M:%SZ}"

    def is_over(self, wall: datetime) -> bool:
        return self.until is not None and self.until <= wall


class WorkerIntents(msgspec.Struct, frozen=True, omit_defaults=True):
    pause: WorkerIntent | None = None
    allow: WorkerIntent | None = None
    forgotten: dict[str, WorkerIntent] = {}


def request_intent(request: Request, who: Who, clock: Clock) -> WorkerIntent:
    """What was asked for. Raises `Declined` when it comes without a reason, or with a time that is none."""
    why, within = request.args.get("reason"), request.args.get("for")
    if not isinstance(why, str) or not why.strip():
        raise Declined("a reason is needed: --reason says why, to whoever reads this at night")
    until = None
    if within is not None:
        try:
            until = clock.wall() + duration(str(within))
        except (ValueError, OverflowError) as error:
            raise Declined(f"--for {within}: {error}") from error
    return WorkerIntent(who.name, why.strip(), clock.wall(), until)


class IntentsUnreadable(RuntimeError):
    """What was asked for is not known. The message is one sentence for the operator."""


class IntentFile:
    """One worker's file of wishes."""

    def __init__(self, paths: RolePaths, worker: str) -> None:
        self._path: Path = paths.state / "intents" / f"{paths.role}.{worker}.json"
        self.wishes = self._remembered()

    def keep(self, wishes: WorkerIntents) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(wishes))
        self.wishes = wishes

    def _remembered(self) -> WorkerIntents:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=WorkerIntents)
        except FileNotFoundError:
            return WorkerIntents()
        except (OSError, ValueError, msgspec.MsgspecError) as error:
            sentence = f"{self._path} cannot be read ({error}): mend it, or delete it to forget it"
            raise IntentsUnreadable(sentence) from error
