"""Frontends, backends and health checks in the inventory: refused unless they are valid together."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine

from holdfast.config.sections.frontend import Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.inventory.changes import ChangeKind, EditRefused, WantedObject, wanted
from holdfast.inventory.edit import editor as edit
from holdfast.inventory.edit.editor import Editor
from holdfast.model.balancing import BACKEND, FRONTEND, HEALTH_CHECK
from holdfast.testing.real.processes import wait_until
from tests.inventory.harness import REGION, is_waiting

CHECK = wanted(HEALTH_CHECK, REGION, "http", HealthCheck(type="http"))


def backend(number: int, *, address: str = "", check: str = "http") -> WantedObject:
    made = Backend(address=address or f"192.0.2.{number}", port=80, healthcheck=(check,))
    return wanted(BACKEND, REGION, f"web-{number}", made)


def frontend(name: str, *numbers: int, port: int = 80, address: str = "203.0.113.1") -> WantedObject:
    pool = Pool(backends={f"web-{number}": PoolMember() for number in numbers})
    return wanted(FRONTEND, REGION, name, Frontend(address=address, port=port, pools=(pool,)))


def test_a_frontend_is_applied_with_its_pools_and_backends(editor: Editor) -> None:
    edits = editor.change([frontend("web", 1, 2), backend(1), backend(2), CHECK], who="alice")
    assert {edit.did for edit in edits} == {ChangeKind.CREATED}
    assert [held.key for held in editor.objects(FRONTEND)] == [b"/holdfast/v1/no-region/balancing/frontends/web"]
    assert [held.name for held in editor.objects(BACKEND)] == ["web-1", "web-2"]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ([frontend("other", 3, port=81)], "frontends.other.pools[0].backends.web-3 is not in balancer.backends"),
        ([backend(3, check="tcp")], "names the check 'tcp', which is not in healthchecks"),
        ([backend(3, address="2001:db8::3"), frontend("other", 3, port=81)], "not of the family of the frontend"),
        ([frontend("other", 1, port=70_000)], "frontend other: port"),
        ([WantedObject(BACKEND, "web-1")], "frontends.web.pools[0].backends.web-1 is not in balancer.backends"),
        ([WantedObject(HEALTH_CHECK, "http")], "names the check 'http', which is not in healthchecks"),
        ([frontend("other", 1)], "frontend other cannot have 203.0.113.1 tcp/80: it is the address of frontend web"),
    ],
    ids=["no backend", "no check", "family", "port", "backend in use", "check in use", "taken"],
)
def test_contradicting_objects_are_refused_and_nothing_is_changed(
    editor: Editor, wish: list[WantedObject], words: str
) -> None:
    editor.change([frontend("web", 1, 2), backend(1), backend(2), CHECK], who="alice")
    with pytest.raises(EditRefused) as refused:
        editor.change(wish, who="alice")
    assert words in str(refused.value)
    assert len(editor.objects(FRONTEND)) == 1
    assert len(editor.objects(BACKEND)) == 2


def test_a_frontend_is_deleted_together_with_what_only_it_uses(editor: Editor) -> None:
    editor.change([frontend("web", 1), backend(1), CHECK], who="alice")
    edits = editor.change([WantedObject(FRONTEND, "web"), WantedObject(BACKEND, "web-1")], who="alice", why="moved")
    assert [edit.did for edit in edits] == [ChangeKind.DELETED, ChangeKind.DELETED]
    assert editor.undo(BACKEND, "web-1", who="bob")[0].did is ChangeKind.CREATED
    assert editor.undo(FRONTEND, "web", who="bob")[0].did is ChangeKind.CREATED


def test_of_two_concurrent_contradicting_batches_one_is_refused(
    postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One puts a backend into a pool while another deletes it; the second waits for the first, and is refused."""
    editor = Editor(postgres_engine, REGION)
    editor.change([frontend("web", 1), backend(1), backend(2), CHECK], who="alice")
    checked, write = threading.Event(), edit._write

    def write_when_the_other_waits(*args: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            checked.set()
            wait_until(lambda: is_waiting(postgres_engine), "the other request waits for a lock")
        return write(*args)

    monkeypatch.setattr(edit, "_write", write_when_the_other_waits)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(editor.change, [frontend("web", 1, 2)], who="bob")
        assert checked.wait(30)
        with pytest.raises(EditRefused, match=r"backends.web-2 is not in balancer.backends"):
            editor.change([WantedObject(BACKEND, "web-2")], who="alice")
        assert first.result(30)[0].did is ChangeKind.CHANGED


def test_two_frontends_share_an_address_on_different_ports(editor: Editor) -> None:
    editor.change([frontend("web", 1), frontend("tls", 1, port=443), backend(1), CHECK], who="alice")
    assert len(editor.objects(FRONTEND)) == 2
