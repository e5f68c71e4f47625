"""Terms as the boards of this machine's servers show them: readable while the electors and etcd do not answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.cli.common.control_socket import label, roles
from holdfast.cli.common.format import short
from holdfast.model.base.time import Instant
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.daemon.board import Board, BoardError
from holdfast.server.election.leadership import LEADERSHIP_CELL, LeadershipCell


@dataclass(frozen=True, slots=True)
class TermOnBoard:
    """Term of a server here, as its elector showed it last. `stale_s` is negative while the term still holds."""

    server: str
    term: int
    stale_s: float

    @property
    def sentence(self) -> str:
        if self.stale_s < 0:
            return f"{self.server} leads, term {self.term}, and has to renew it within {short(-self.stale_s)}"
        return f"{self.server} led last, {stale_term(self.term, self.stale_s, 'stale for')}"


def stale_term(term: int, age_s: float, verb: str = "not renewed for") -> str:
    """Return the words for a stale term and its age."""
    return f"term {term} {verb} {short(age_s)}"


def read_terms(runtime: Path) -> dict[str, TermOnBoard]:
    """Return the terms of the servers here whose board shows one, by daemon."""
    now, found = SystemClock().now(), {}
    for role in roles(runtime):
        shown = _shown(runtime / f"{role}.board")
        if shown is not None and (term := term_on_board(label(role), shown, now)) is not None:
            found[label(role)] = term
    return found


def term_on_board(server: str, shown: LeadershipCell, now: Instant) -> TermOnBoard | None:
    """Return the term that the board shows; None on a server that does not lead."""
    if shown.phase != "leading" or not shown.term:
        return None
    return TermOnBoard(shown.leader or server, shown.term, (now - shown.until).total_seconds())


def last_known(runtime: Path) -> list[str]:
    """Return one sentence for each term that a server of this machine has, or had last."""
    return [term.sentence for term in read_terms(runtime).values()]


def _shown(path: Path) -> LeadershipCell | None:
    try:
        board = Board.open(path, read_only=True)
        return board.cell(LEADERSHIP_CELL, LeadershipCell).read() if LEADERSHIP_CELL in board.cells() else None
    except BoardError:
        return None  # a daemon that has just ended, or of another version: its line in status says so
