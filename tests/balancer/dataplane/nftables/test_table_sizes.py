"""Tables of another size: VIPs change one by one, and serve all the while."""

from __future__ import annotations

import pytest

from holdfast.balancer.dataplane.nftables.connection import NftConnection
from holdfast.balancer.vip import BackendEntry, Value, Vip, VipKey, VipSettings, backend
from holdfast.reconcile import Change
from tests.balancer.dataplane.conformance import change
from tests.balancer.dataplane.nftables.harness import SIZE, TABLE, V4, V6, WEB4, WEB6, Ground, is_served

OTHER = 1021


def served(vip: Vip, size: int = SIZE) -> list[Change[VipKey, Value]]:
    web = WEB4 if vip.family == 4 else WEB6
    settings = VipSettings(table_size=size)
    return [change(VipKey(vip), settings), *(change(VipKey(vip, one), BackendEntry(100)) for one in web.values())]


def test_a_vip_changes_size_while_another_may_not_yet(ground: Ground) -> None:
    ground.make(*served(V4), *served(V6))
    ground.make(*served(V4, OTHER))
    assert is_served(ground, V4, size=OTHER)
    assert is_served(ground, V6, size=SIZE)
    ground.make(*served(V6, OTHER))
    assert is_served(ground, V6, size=OTHER)
    assert f"-{SIZE} " not in ground.nft("list", "table", "inet", TABLE)


def test_a_vip_whose_new_buckets_were_never_filled_serves_on(ground: Ground) -> None:
    ground.make(*served(V4), *served(V6))

    def killed(_kernel: NftConnection, _transaction: object) -> None:
        raise InterruptedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NftConnection, "commit", killed)
        with pytest.raises(InterruptedError):
            ground.make(*served(V6, OTHER))
    ground.restart()
    ground.make(*served(V4, OTHER))
    assert is_served(ground, V6, size=SIZE)


def test_a_vip_with_too_many_backends_for_the_new_size_serves_on_and_says_so(ground: Ground) -> None:
    many = [change(VipKey(V4, backend("10.9.9.9", port)), BackendEntry(1)) for port in range(1, OTHER + 1)]
    ground.make(*served(V4), *served(V6))
    said = ground.do(lambda plane: plane.apply([*served(V6, OTHER), *served(V4, OTHER), *many]))
    assert said[-1] is not None
    assert "do not fit a table of 1,021 buckets" in said[-1]
    assert is_served(ground, V6, size=OTHER)
    assert is_served(ground, V4, size=SIZE)
