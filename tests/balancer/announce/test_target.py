"""Announced addresses on the real kernel: added, read back and removed; foreign addresses stay."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from holdfast.balancer.announce.policy import AnnouncedAddress
from holdfast.balancer.announce.target import AddressTarget, keeps_marks
from holdfast.netlink.netns import inside
from holdfast.reconcile import Change, Op, Owned
from holdfast.testing.real.netns import Namespace, NamespaceNetwork

T = TypeVar("T")

FOUR, SIX = AnnouncedAddress.of("192.0.2.80", "lo"), AnnouncedAddress.of("2001:db8::80", "lo")
OURS = Owned(None, "", 0)


class Machine:
    """A namespace, and what an announcer there does. `marks`: the kernel keeps whose an address is."""

    def __init__(self, namespace: Namespace, file: Path, *, marks: bool) -> None:
        self.namespace = namespace
        self._file = file
        self._marks = marks

    def found(self) -> set[AnnouncedAddress]:
        """By an announcer that has just been started."""
        return {spot for spot, _ in self._do(lambda made: asyncio.run(made.read(None)))[0]}

    def change(self, op: Op, *spots: AnnouncedAddress) -> list[str | None]:
        old, new = (OURS, None) if op is Op.DELETE else (None, OURS)
        changes = [Change(op, spot, old, new) for spot in spots]
        return [outcome.error for outcome in self._do(lambda made: asyncio.run(made.apply(changes)))]

    def shown(self) -> str:
        return self.namespace.run("ip", "-oneline", "address", "show", "dev", "lo")

    def _do(self, work: Callable[[AddressTarget], T]) -> T:
        with contextlib.closing(AddressTarget(self._file, marks=self._marks)) as made:
            return inside(self.namespace.system_name, lambda: work(made))


@pytest.fixture(params=[True, False], ids=["marks", "file"])
def machine(request: pytest.FixtureRequest, namespaces: NamespaceNetwork, tmp_path: Path) -> Machine:
    return Machine(namespaces.namespace("lb"), tmp_path / "announced.json", marks=request.param)


def test_an_announced_address_is_on_its_device_and_is_read_back(machine: Machine) -> None:
    assert machine.change(Op.CREATE, FOUR, SIX) == [None, None]
    assert "192.0.2.80/32" in machine.shown()
    assert "2001:db8::80/128" in machine.shown()
    assert "tentative" not in machine.shown()
    assert machine.found() == {FOUR, SIX}


def test_a_withdrawn_address_is_gone(machine: Machine) -> None:
    machine.change(Op.CREATE, FOUR, SIX)
    assert machine.change(Op.DELETE, SIX) == [None]
    assert machine.found() == {FOUR}
    assert "2001:db8::80" not in machine.shown()


def test_a_foreign_address_is_not_seen_and_not_taken(machine: Machine) -> None:
    machine.namespace.run("ip", "address", "add", "192.0.2.80/32", "dev", "lo")
    assert machine.found() == set()
    (refused,) = machine.change(Op.CREATE, FOUR)
    assert refused is not None
    assert "192.0.2.80/32 dev lo exists already and is not ours" in refused
    assert machine.found() == set()
    assert machine.change(Op.DELETE, FOUR) == [None]
    assert "192.0.2.80/32" in machine.shown()


def test_a_device_that_is_not_there_is_a_sentence_and_holds_up_no_other(machine: Machine) -> None:
    refused, done = machine.change(Op.CREATE, AnnouncedAddress.of("192.0.2.80", "anycast0"), SIX)
    assert refused == "there is no device anycast0: create it, or change announce.device"
    assert done is None


def test_the_address_of_a_device_that_is_gone_is_gone_with_it(machine: Machine) -> None:
    assert machine.change(Op.DELETE, AnnouncedAddress.of("192.0.2.80", "anycast0")) == [None]


def test_without_permission_the_error_is_one_sentence(namespaces: NamespaceNetwork, tmp_path: Path) -> None:
    script = (
        "import asyncio, pathlib, sys\n"
        "from holdfast.balancer.announce.policy import AnnouncedAddress\n"
        "from holdfast.balancer.announce.target import AddressTarget\n"
        "from holdfast.reconcile import Change, Op, Owned\n"
        "change = Change(Op.CREATE, AnnouncedAddress.of('192.0.2.80', 'lo'), None, Owned(None, '', 0))\n"
        "print(asyncio.run(AddressTarget(pathlib.Path(sys.argv[1])).apply([change]))[0].error)\n"
    )
    machine = namespaces.namespace("lb")
    words = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", "--", sys.executable, "-c", script]
    assert machine.run(*words, str(tmp_path / "f")) == "not permitted: give CAP_NET_ADMIN to the announcer\n"


@pytest.mark.parametrize(
    ("release", "kept"),
    [("5.17.9", False), ("5.18.0-1-amd64", True), ("6.1.0", True), ("4.19.0", False), ("odd", False)],
)
def test_the_kernel_keeps_marks_from_5_18_on(release: str, kept: bool) -> None:
    assert keeps_marks(release) is kept
