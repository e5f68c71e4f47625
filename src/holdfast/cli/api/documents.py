"""The documents that the API serves: those of `holdfast status`, `get servers`, `explain` and `history`, and the fleet.

It calls the functions of these commands, in threads, and asks the daemons of its runtime folder through their control
sockets. What it says about the rest of the fleet comes from the reports in etcd.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from holdfast import __version__
from holdfast.api.documents import ChangedMeanwhile, DocumentError, IntentRequest, RefusedChange, UnknownState
from holdfast.api.fleet.view import FleetView
from holdfast.cli.api.ages import ProblemAges
from holdfast.cli.api.frontends import FrontendsHere
from holdfast.cli.change.intents import any_server, intent_target, leading_worker
from holdfast.cli.common.control_socket import CannotTell, no_daemon, request_change, roles, send_command
from holdfast.cli.explain.command import KINDS, query
from holdfast.cli.get.servers import read_servers_here
from holdfast.cli.history import decisions
from holdfast.cli.status.page import document
from holdfast.cli.status.view import read_status
from holdfast.model.base.region import Region
from holdfast.reconcile.change import Away
from holdfast.runtime.control import BY_API, Request, Who, ask
from holdfast.runtime.paths import RolePaths
from holdfast.store.api import Store, StoreError
from holdfast.store.servers import read_servers

T = TypeVar("T")

_FRESH_S = 0.5
"""Clients within this time share one status."""
_NO_STORE = "no store is configured here: ask the API of a server"


class CommandDocuments:
    """The documents that the commands print. Without a store, only about the daemons here."""

    def __init__(self, paths: RolePaths, store: Store | None, region: Region) -> None:
        self._paths = paths
        self._store, self._region = store, region
        self.view = None if store is None else FleetView(store, region)
        self._reading = asyncio.Lock()
        self._status: tuple[float, dict[str, Any]] | None = None
        self._ages = ProblemAges()
        self._frontends = FrontendsHere(paths.runtime)

    async def status(self) -> dict[str, Any]:
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._status is None or now - self._status[0] > _FRESH_S:
                with _as_document_errors():
                    found = document(await read_status(self._paths.runtime))
                self._status = asyncio.get_running_loop().time(), found
            return self._status[1]

    async def summary(self) -> dict[str, Any]:
        found, now = await self.status(), datetime.now(UTC)
        return {
            **found,
            "problems": self._ages.dated(found["problems"], now),
            "at": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "version": __version__,
            "served_by": socket.gethostname(),
        }

    async def servers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = msgspec.to_builtins(await self._called(read_servers_here))
        return found

    async def explain(self, kind: str, name: str) -> dict[str, Any]:
        if kind not in KINDS or kind == "flow":
            raise DocumentError(f"there is no kind {kind!r}; there are: {', '.join(k for k in KINDS if k != 'flow')}")
        return await self._called(lambda runtime: query(kind, name, None, None, runtime))

    async def history(self, key: str | None, last: int) -> list[dict[str, Any]]:
        found = await self._called(lambda runtime: decisions(runtime, [key], last, {}))
        return [one.document for one in found[-last:]]

    async def decisions(self, last: int) -> list[dict[str, Any]]:
        request = Request("history", {"key": None, "last": last})
        found: list[dict[str, Any]] = []
        answers = [await ask(self._paths.runtime / f"{role}.sock", request) for role in roles(self._paths.runtime)]
        for answer in answers:
            found += answer.result or []
        return sorted(found, key=lambda one: str(one["time"]))[-last:]

    async def metrics(self) -> str:
        answer = await ask(self._paths.socket(), Request("metrics"))
        if answer.error:
            raise UnknownState(answer.error)
        return str(answer.result)

    async def hosts(self) -> dict[str, Any]:
        return self._fleet_view().hosts()

    async def fleet(self) -> dict[str, Any]:
        view, intents = self._fleet_view(), (await self.status())["intents"]
        shown = {
            "complete": view.is_complete,
            "totals": view.totals(),
            "terms": view.terms(),
            "balancers": {name: _without_details(one) for name, one in view.balancers().items()},
            "intents": _each_once([*msgspec.to_builtins(view.intents()), *intents]),
            "drains": view.drains(),
            "agent_gates": view.agent_gates(),
            "servers": await self._servers_of_store(),
        }
        found: dict[str, Any] = msgspec.to_builtins(shown)
        return found

    async def _servers_of_store(self) -> Any:
        assert self._store is not None
        try:
            return msgspec.to_builtins(await read_servers(self._store, self._region))
        except (Away, StoreError) as error:
            raise UnknownState(str(error)) from error

    async def frontends(self) -> dict[str, Any]:
        reports = {} if self.view is None else self.view.balancers()
        return {"here": await self._frontends.read(), "reports": reports}

    async def table(self, frontend: str) -> dict[str, Any]:
        found = await self._frontends.table(frontend)
        if isinstance(found, str):
            raise DocumentError(found)
        return found

    async def gates(self) -> list[dict[str, Any]]:
        """Return closed gates, each with its reason and what opens it: of the workers here, then of all agents."""
        found = closed_gates((await self.status())["held"])
        agents = [] if self.view is None else self.view.agent_gates()
        return found + [{"worker": "agents", **msgspec.to_builtins(one)} for one in agents]

    async def plan(self, gate: str) -> dict[str, Any]:
        worker, kind = _releasable(gate)
        held = await self._called(
            lambda runtime: send_command(runtime, leading_worker(runtime, worker), "held", gate=kind)
        )
        seal = f"{held['gates'].get(kind, 0)}.{held.get('seals', {}).get(kind, held['seal'])}"
        objects = [one for one in held["objects"] if one["gate"] == kind]
        return {"gate": gate, "total": held["gates"].get(kind, 0), "seal": seal, "objects": objects}

    async def change(self, asked: IntentRequest) -> str:
        given = {"reason": asked.reason, **({"for": asked.lasting} if asked.lasting else {})}

        def call(runtime: Path) -> Any:
            target, command, args = _asked_of(runtime, asked)
            begins = asked.action in ("pause", "drain")
            return request_change(runtime, target, command, _on_behalf(asked.who), **args, **(given if begins else {}))

        return str(await self._changed(call))

    async def release(self, gate: str, who: str, reason: str, seal: str) -> str:
        worker, kind = _releasable(gate)
        found = await self.plan(gate)
        if found["seal"] != seal:
            raise ChangedMeanwhile(f"{gate} holds others than were shown: look at the plan again")
        shown = {"shown": found["total"], "seal": seal.partition(".")[2]}

        def call(runtime: Path) -> Any:
            target = leading_worker(runtime, worker)
            return request_change(runtime, target, "allow", _on_behalf(who), gate=kind, reason=reason, **shown)

        return str(await self._changed(call))

    async def _changed(self, function: Callable[[Path], T]) -> T:
        try:
            return await self._called(function)
        except UnknownState:
            raise
        except DocumentError as error:
            raise RefusedChange(str(error)) from error

    def _fleet_view(self) -> FleetView:
        if self.view is None:
            raise UnknownState(_NO_STORE)
        return self.view

    async def _called(self, function: Callable[[Path], T]) -> T:
        """Call a function of a command in a thread: it waits for the daemons."""
        if not roles(self._paths.runtime):
            raise UnknownState(no_daemon(self._paths.runtime).message)
        with _as_document_errors():
            return await asyncio.to_thread(function, self._paths.runtime)


def _without_details(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a balancer's report without the pools, which the document of the frontends has."""
    return {name: value for name, value in report.items() if not name.startswith("details")}


def closed_gates(held: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Put the held changes of each worker together by gate and reason. Pure."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for worker, objects in held.items():
        for one in objects:
            if not one["gate"]:
                continue
            key = worker, one["gate"], one["reason"], one["opens"]
            gate = found.setdefault(
                key, {"worker": worker, **dict(zip(("gate", "reason", "opens"), key[1:], strict=True)), "held": {}}
            )
            gate["held"][one["op"]] = gate["held"].get(one["op"], 0) + 1
            gate["since_s"] = max(gate.get("since_s", 0.0), one["since_s"])
    return list(found.values())


def _asked_of(runtime: Path, asked: IntentRequest) -> tuple[str, str, dict[str, str]]:
    """Return worker, command and arguments."""
    if asked.action in ("pause", "resume"):
        return intent_target(runtime, asked.kind, asked.name or None, asked.action)
    if asked.kind != "host":
        raise click.UsageError(f"a {asked.kind} cannot be drained: only a host can.")
    return any_server(runtime), f"{asked.action}-host", {"name": asked.name}


def _each_once(intents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = {(one["what"], str(one["scope"])): one for one in intents}
    return sorted(found.values(), key=lambda one: str(one["since"]))


def _releasable(gate: str) -> tuple[str, str]:
    """Return worker and kind of a gate that an operator can release."""
    worker, _, kind = gate.rpartition("/")
    if kind not in ("brake", "mass_loss", "witness") or not worker:
        raise DocumentError(f"{gate!r} cannot be released: only a brake can, such as syncer/brake, and syncer/witness")
    return worker, kind


def _on_behalf(token: str) -> Who:
    return Who(os.geteuid(), os.getpid(), f"{BY_API}{token}")


@contextlib.contextmanager
def _as_document_errors() -> Iterator[None]:
    try:
        yield
    except CannotTell as error:
        raise UnknownState(error.message) from error
    except click.ClickException as error:
        raise DocumentError(error.message) from error
