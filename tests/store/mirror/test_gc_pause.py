"""The garbage collector rests during large snapshots, and only then."""

from __future__ import annotations

import gc

import pytest

from holdfast.store.mirror.gc_pause import WORTH_IT, gc_paused


def test_it_rests_while_a_large_snapshot_is_taken_in() -> None:
    with gc_paused(WORTH_IT):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_it_does_not_rest_for_a_small_one() -> None:
    with gc_paused(WORTH_IT - 1):
        assert gc.isenabled()


def test_of_two_snapshots_at_once_the_last_one_wakes_it() -> None:
    first, second = gc_paused(WORTH_IT), gc_paused(WORTH_IT)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_it_wakes_after_a_snapshot_that_failed() -> None:
    with pytest.raises(OSError, match="broken"), gc_paused(WORTH_IT):
        raise OSError("broken")
    assert gc.isenabled()


def test_who_has_switched_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with gc_paused(WORTH_IT):
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
