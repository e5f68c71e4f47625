"""Order of keys, and how much is sorted without a break."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.agent.claims import AT_A_TIME, ClaimKey, ClaimKind, in_order, portions
from holdfast.runtime.cooperative import at_once

keys = st.builds(
    ClaimKey, st.sampled_from(ClaimKind), st.sampled_from([4, 6]), st.integers(0, 2**128 - 1), st.integers(0, 128)
)
close = st.builds(ClaimKey, st.sampled_from(ClaimKind), st.sampled_from([4, 6]), st.integers(0, 3), st.integers(0, 3))


@given(st.sets(keys | close))
def test_it_is_the_order_that_keys_have_of_themselves(some: set[ClaimKey]) -> None:
    assert at_once(in_order(some)) == sorted(some)


def test_portions_are_all_of_it_a_few_at_a_time() -> None:
    everything = range(2 * AT_A_TIME + 1)
    cut = [list(some) for some in portions(everything)]
    assert [len(some) for some in cut] == [AT_A_TIME, AT_A_TIME, 1]
    assert [one for some in cut for one in some] == list(everything)
