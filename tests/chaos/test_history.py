"""The history checker finds what it promises to find."""

from __future__ import annotations

from holdfast.lab.fleet.fenced_writer import WriterEntry
from holdfast.lab.fleet.history_check import AcceptedWrite, History, LeaderChange, violations, writes_after


def write(revision: int, server: str, term: int, number: int) -> AcceptedWrite:
    return AcceptedWrite(revision, WriterEntry(server, 1, term, number))


def test_two_terms_one_after_the_other_are_fine() -> None:
    assert not violations(
        [
            LeaderChange(3, 3),
            write(4, "a", 3, 1),
            LeaderChange(5, 3),
            write(6, "a", 3, 2),
            LeaderChange(7, 0),
            LeaderChange(8, 8),
            write(9, "b", 8, 1),
        ]
    )


def test_a_write_of_an_old_term_after_the_new_one_began_is_found() -> None:
    found = violations(
        [LeaderChange(3, 3), write(4, "a", 3, 1), LeaderChange(7, 0), LeaderChange(8, 8), write(9, "a", 3, 2)]
    )
    assert found == ["revision 9: a wrote under term 3, but term 8 led"]


def test_a_write_without_a_leader_is_found() -> None:
    assert violations([LeaderChange(3, 3), LeaderChange(4, 0), write(5, "a", 3, 1)]) == [
        "revision 5: a wrote under term 3, but there was no leader"
    ]


def test_two_writers_of_one_term_are_found() -> None:
    assert violations([LeaderChange(3, 3), write(4, "a", 3, 1), write(5, "b", 3, 1)]) == [
        "revision 5: b wrote under term 3, which is a's"
    ]


def test_a_term_that_does_not_grow_is_found() -> None:
    assert violations([LeaderChange(8, 8), LeaderChange(9, 0), LeaderChange(10, 3)]) == [
        "revision 10: term 3 began after term 8"
    ]


def test_a_write_that_was_put_twice_is_found() -> None:
    assert violations([LeaderChange(3, 3), write(4, "a", 3, 7), write(5, "a", 3, 7)]) == [
        "revision 5: a wrote under term 3 its number 7 again"
    ]


def test_writes_after_a_revision_are_counted_per_server() -> None:
    history: History = [
        LeaderChange(3, 3),
        write(4, "a", 3, 1),
        write(5, "a", 3, 2),
        LeaderChange(6, 6),
        write(7, "b", 6, 1),
    ]
    assert (writes_after(history, 4, "a"), writes_after(history, 4, "b")) == (1, 1)
