"""Pending changes: one item per key, live ones first, with the age of the oldest."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.base.time import Instant
from holdfast.store.mirror.pending import Pending, PendingKey

KEYS = [b"a", b"b", b"c", b"d"]
STEPS = st.lists(st.tuples(st.sampled_from(["changed", "listed", "take"]), st.sampled_from(KEYS), st.integers(0, 3)))


def at(second: int) -> PendingKey:
    return PendingKey(Instant(second), second)


def test_a_listed_key_that_changes_live_is_handed_out_first_and_has_waited_all_the_time() -> None:
    pending = Pending()
    pending.listed({b"old": at(5)})
    pending.changed(b"new", 10, Instant(10))
    pending.changed(b"old", 11, Instant(11))
    assert pending.oldest() == at(5)
    assert pending.take(1) == [(True, [b"old"]), (True, []), (False, [])]
    assert (pending.oldest(), len(pending)) == (at(10), 1)


@given(STEPS)
def test_each_key_waits_once_and_the_oldest_is_the_oldest(steps: list[tuple[str, bytes, int]]) -> None:
    pending = Pending()
    waits: dict[bytes, int] = {}
    for now, (step, key, most) in enumerate(steps, 1):
        if step == "changed":
            pending.changed(key, now, Instant(now))
            waits.setdefault(key, now)
        elif step == "listed":
            listed = dict.fromkeys([one for one in KEYS if one >= key], at(now))
            pending.listed(listed)
            waits = dict.fromkeys(listed, now) | waits
        else:
            for taken in itertools.chain.from_iterable(some for _, some in pending.take(most)):
                del waits[taken]
        oldest = pending.oldest()
        assert (oldest.since if oldest else None) == (Instant(min(waits.values())) if waits else None)
        assert len(pending) == len(waits)
        assert all(one in pending for one in waits)
