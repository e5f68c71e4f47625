"""Intents are written before they take effect, with who and why, and survive restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.config.root import Config
from holdfast.config.sections.log import LogSettings
from holdfast.model.base.time import seconds
from holdfast.reconcile import Synced
from holdfast.runtime.control import Declined, Request, Who
from holdfast.runtime.daemon.board import Board
from holdfast.runtime.daemon.worker import Spec, Worker
from holdfast.runtime.decision_log import history
from holdfast.runtime.intents.applied import AppliedIntents
from holdfast.runtime.intents.commands import IntentCommands
from holdfast.runtime.intents.store import FileIntents
from holdfast.runtime.paths import RolePaths
from tests.reconcile.pauses import ROUTES
from tests.runtime.harness import HandClock, MemoryPlace, numbered

ADA = Who(1_000, 77, "ada")


class Office:
    """A worker's reconciler with the operator's commands on it; made again, it is the same worker after a restart."""

    def __init__(self, folder: Path, *, want: int = 12, have: int = 12, clock: HandClock | None = None) -> None:
        self.site = MemoryPlace(folder / "site", numbered(want), numbered(have), clock=clock)
        paths = RolePaths("lab", folder / "run", folder / "state")
        board = Board.create(folder / "board", ["routes"])
        self.worker = Worker(Spec("routes", ""), "lab", paths, Config(log=LogSettings()), self.site.clock, board)
        self.file = paths.state / "intents" / "lab.routes.json"
        context, reconciler = self.worker.context, self.site.reconciler
        intents = FileIntents(paths, "routes", self.site.clock)
        self.applied = AppliedIntents(context, reconciler, self.site.intent, intents.all)
        self.intents = IntentCommands(context, reconciler, self.applied, self.site.sync, ROUTES, intents)
        self.worker.handlers |= self.intents.handlers()

    def ask(self, do: str, **args: Any) -> Any:
        async def asked() -> Any:
            return await self.worker.handlers[do](Request(do, args), ADA)

        return asyncio.run(asked())

    def turn(self, after: float = 1.1, times: int = 3) -> None:
        asyncio.run(self.site.turn(after=after, times=times))

    def told(self) -> list[str]:
        return [one.sentence for one in history(self.worker.paths.decisions)]


def test_a_pause_says_who_why_and_how_to_end_it(tmp_path: Path) -> None:
    office = Office(tmp_path, have=0)
    assert (
        office.ask("pause", reason="maintenance")
        == "worker routes is paused; end it with: holdfast resume worker routes"
    )
    office.turn()
    assert office.site.there == {}
    assert office.site.reconciler.outstanding()[0].reason == "ada: “maintenance”: an operator paused it"
    assert office.told() == [
        "pause of worker routes by ada: “maintenance”",
        "ada asked for pause of worker routes: “maintenance”",
    ]


def test_a_pause_survives_a_restart_and_a_resume_too(tmp_path: Path) -> None:
    Office(tmp_path).ask("pause", reason="maintenance")
    again = Office(tmp_path, have=0)
    again.turn()
    assert again.site.there == {}
    assert again.ask("resume") == "worker routes goes on"
    again.turn()
    assert again.site.there == numbered(12)
    last = Office(tmp_path, have=0)
    last.turn()
    assert last.site.there == numbered(12)
    assert last.told()[-1] == "ada asked for resume of worker routes"


def test_a_pause_for_a_time_runs_out_also_over_a_restart(tmp_path: Path) -> None:
    clock = HandClock()
    assert "until 00:10:00Z" in Office(tmp_path, clock=clock).ask("pause", reason="tea", **{"for": "10m"})
    clock.move(599)
    again = Office(tmp_path, have=0, clock=clock)
    again.turn(after=0)
    assert again.site.there == {}
    again.turn(after=1.1)
    assert again.site.there == numbered(12)


@pytest.mark.parametrize("reason", [None, "", "   ", 7])
@pytest.mark.parametrize("command", ["pause", "allow", "forget"])
def test_nothing_is_done_without_a_reason(tmp_path: Path, command: str, reason: object) -> None:
    office = Office(tmp_path)
    with pytest.raises(Declined, match="a reason is needed"):
        office.ask(command, source="db", reason=reason)
    assert not office.file.exists()


@pytest.mark.parametrize("text", ["soon", "-5m", "", "99999999999d", "1e9h", 7])
def test_a_time_that_makes_no_sense_is_declined(tmp_path: Path, text: object) -> None:
    office = Office(tmp_path)
    with pytest.raises(Declined, match="--for"):
        office.ask("pause", reason="tea", **{"for": text})
    assert not office.file.exists()


def test_an_intent_that_cannot_be_saved_does_not_take_effect(tmp_path: Path) -> None:
    office = Office(tmp_path, have=0)
    office.file.parent.parent.mkdir(parents=True)
    office.file.parent.write_text("a file where the folder should be")
    with pytest.raises(Declined, match="cannot be written: File exists"):
        office.ask("pause", reason="maintenance")
    assert office.site.intent.pauses == ()


def test_allow_once_lets_exactly_through_what_was_shown(tmp_path: Path) -> None:
    office = Office(tmp_path, want=0)
    office.turn()
    shown = office.ask("held")
    assert (shown["total"], shown["gates"], len(shown["objects"])) == (12, {"brake": 12}, 12)
    with pytest.raises(Declined, match="9 were shown but 12 are held now: check again"):
        office.ask("allow", reason="x", shown=9)
    office.turn()
    assert len(office.site.there) == 12
    assert office.ask("allow", reason="x", shown=12) == "12 held deletes go through once"
    office.turn()
    assert office.site.there == {}


def test_allow_once_is_declined_when_as_many_others_are_held_by_now(tmp_path: Path) -> None:
    office = Office(tmp_path, want=1)
    office.turn()
    seal = office.ask("held")["seal"]
    office.site.want({1: "v1"})
    asyncio.run(office.site.look_at_all(after=1.1))
    assert office.ask("held")["gates"] == {"brake": 11}
    with pytest.raises(Declined, match="others than were shown are held now: check again"):
        office.ask("allow", reason="x", shown=11, seal=seal)
    office.turn()
    assert len(office.site.there) == 12
    office.ask("allow", reason="x", shown=11, seal=office.ask("held")["seal"])
    office.turn()
    assert office.site.there == {1: "v1"}


def test_what_is_shown_is_bounded_and_what_is_counted_is_not(tmp_path: Path) -> None:
    office = Office(tmp_path, want=0, have=5_000)
    office.turn(times=1)
    shown = office.ask("held")
    assert (shown["total"], shown["gates"]["brake"], len(shown["objects"])) == (5_000, 5_000, 1_000)


def test_allow_for_a_time_survives_a_restart_and_ends(tmp_path: Path) -> None:
    clock = HandClock()
    Office(tmp_path, clock=clock).ask("allow", reason="x", **{"for": "5m"})
    again = Office(tmp_path, want=0, clock=clock)
    again.turn()
    assert again.site.there == {}
    clock.move(300)
    late = Office(tmp_path, want=0, clock=clock)
    late.turn()
    assert len(late.site.there) == 12


def test_an_allow_for_a_time_is_taken_back_also_for_the_next_start(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.ask("allow", reason="x", **{"for": "5m"})
    assert office.ask("revoke") == "routes/brake holds mass deletes again"
    again = Office(tmp_path, want=0)
    again.turn()
    assert len(again.site.there) == 12
    assert [one for one in again.told() if "allow" in one][-2:] == [
        "allow of worker routes was withdrawn; it was by ada until 00:05:00Z: “x”",
        "ada took the allow of routes/brake back",
    ]


def test_an_allow_for_once_is_taken_back_as_long_as_it_is_not_used(tmp_path: Path) -> None:
    office = Office(tmp_path, want=0)
    office.turn()
    office.ask("allow", reason="x", shown=12)
    office.ask("revoke")
    office.turn()
    assert len(office.site.there) == 12
    with pytest.raises(Declined, match="nothing is allowed at routes/brake"):
        office.ask("revoke")


def test_what_changed_ran_out_or_was_asked_again_is_recorded(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.ask("pause", reason="tea", **{"for": "10m"})
    office.ask("pause", reason="lunch", **{"for": "20m"})
    office.site.clock.move(1_201)
    office.applied.apply()
    outcomes = [one.outcome for one in history(office.worker.paths.decisions) if one.outcome != "asked"]
    assert outcomes == ["set", "changed", "expired"]
    assert office.told()[-1] == "pause of worker routes expired; it was by ada until 00:20:00Z: “lunch”"
    assert office.ask("intents") == []


def test_a_forgotten_source_is_forgotten_over_a_restart_but_one_that_came_back_is_not_forgotten_again(
    tmp_path: Path,
) -> None:
    office = Office(tmp_path)
    with pytest.raises(Declined, match="there is no source 'x'; there are: db"):
        office.ask("forget", source="x", reason="gone")
    office.ask("forget", source="db", reason="gone")
    assert office.site.sync.sources == {}
    again = Office(tmp_path)
    assert again.site.sync.sources == {}
    again.site.sync.note_source("db", Synced(again.site.clock.now()))
    again.ask("pause", reason="tea")
    assert list(again.site.sync.sources) == ["db"]


def test_a_forgotten_source_that_delivers_a_list_again_is_not_forgotten_at_the_next_start(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.ask("forget", source="db", reason="gone")
    asyncio.run(office.intents.readmit_sources())
    assert Office(tmp_path).site.sync.sources == {}
    office.site.sync.note_source("db", Synced(office.site.clock.now(), 7))
    asyncio.run(office.intents.readmit_sources())
    assert office.told()[-1] == "the forgotten source db has delivered a complete list and counts again"
    assert list(Office(tmp_path).site.sync.sources) == ["db"]


@pytest.mark.parametrize("content", [b"rubbish", b"{}", b'[{"who": {"who": "\xff"}}', b""])
def test_intents_that_cannot_be_read_stop_the_worker_because_one_could_be_a_pause(
    tmp_path: Path, content: bytes
) -> None:
    office = Office(tmp_path)
    office.ask("pause", reason="maintenance")
    office.file.write_bytes(content)
    with pytest.raises(RuntimeError, match="fix it, or delete it"):
        Office(tmp_path)


def test_a_worker_that_has_compared_nothing_yet_does_not_look_like_one_that_found_nothing(tmp_path: Path) -> None:
    office = Office(tmp_path)
    assert (office.ask("held")["passes"], office.ask("held")["objects"]) == (0, [])
    office.turn()
    assert office.ask("held")["passes"] == 1


def test_sync_looks_at_everything_again(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.turn()
    office.site.target.objects.clear()
    assert office.ask("sync") == "routes compares everything again"
    office.turn(after=0, times=1)
    assert office.site.there == numbered(12)


def test_a_deadline_does_not_move_with_the_clock_on_the_wall(tmp_path: Path) -> None:
    office = Office(tmp_path, have=0)
    office.ask("pause", reason="tea", **{"for": "10m"})
    (pause,) = office.site.intent.pauses
    assert pause.until == office.site.clock.now() + seconds(600)
