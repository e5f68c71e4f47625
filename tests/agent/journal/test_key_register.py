"""Keys are added and removed during a walk: those that stay are yielded once, and the register is right after it."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.journal.codec import Key
from holdfast.agent.journal.contents import KeyRegister

KEYS = [b"%d" % number for number in range(6)]
CHANGES = st.lists(st.sampled_from(KEYS), max_size=6)


def toggle(roll: KeyRegister, present: set[Key], keys: list[bytes]) -> None:
    """Removes a key that is there, adds one that is not."""
    for key in keys:
        if key in present:
            roll.remove(key)
            present.remove(key)
        else:
            roll.add(key)
            present.add(key)


def all_of(roll: KeyRegister) -> Counter[Key]:
    return Counter(chain.from_iterable(roll.walk(2)))


@given(st.integers(1, 7), st.lists(CHANGES, max_size=5), st.integers(0, 8))
def test_a_walk_yields_the_keys_that_stay_whatever_is_added_or_removed_meanwhile(
    portion: int, changes: list[list[bytes]], given_up_after: int
) -> None:
    roll, present = KeyRegister(KEYS[:4]), set[Key](KEYS[:4])
    for before in changes[:2]:
        toggle(roll, present, before)
    walk = roll.walk(portion)
    staying, met = set(present), Counter[Key]()
    for number, keys in enumerate(walk):
        assert present >= set(keys)
        met.update(keys)
        if number < len(changes):
            toggle(roll, present, changes[number])
            staying &= present
        if number == given_up_after:
            break
    else:
        assert staying <= met.keys()
    walk.close()
    assert all_of(roll) == Counter(present)


def test_a_walk_ends_although_keys_come_all_the_time() -> None:
    roll = KeyRegister(KEYS)
    met = 0
    for number, keys in enumerate(roll.walk(1)):
        roll.add(b"new %d" % number)
        met += len(keys)
    assert met == len(KEYS)
