"""Scenes of the balancer: it dies, a backend dies, an operator takes a backend out; and who noticed.

The dataplane's own file tells what was written to it and whose flows were ended, and the lab's client, which uses the
VIP all the time, tells which requests failed. Both are asked before and after; nothing is assumed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.balancer.vip import Entry, Key
from holdfast.lab import site
from holdfast.lab.balancer import BALANCER, ROLE
from holdfast.lab.client import FLOWS
from holdfast.lab.dataplane import VipsFile
from holdfast.lab.flows import Counts
from holdfast.lab.site import FALL, INTERVAL, SERVERS, WEIGHT
from holdfast.lab.stage import CLOCK, PATIENCE, Broken, Lab, Say, Scene, promise, send, until
from holdfast.model.time import Duration
from holdfast.runtime.control import Request, ask

_DETECTED = (FALL + 1) * INTERVAL + Duration(seconds=2)
"""A backend that refuses is out after `fall` probes; the rest is for a busy machine."""
_WATCHED = 10 * FLOWS
"""Requests that must not fail afterwards."""
_VICTIM = "web-2"


@dataclass(frozen=True, slots=True)
class Site:
    """The web site of a running lab, seen from outside."""

    lab: Lab

    @property
    def state(self) -> Path:
        return self.lab.folder / "state"

    def programmed(self) -> VipsFile:
        """The dataplane as it is now."""
        found = VipsFile(path=site.vips_file(self.state))
        found.load()
        return found

    def entry(self, server: str) -> Entry | None:
        return self.programmed().entries.get(self.key(server))

    def key(self, server: str) -> Key:
        return site.entry(self.state, server)

    def serves_with(self, server: str) -> bool:
        return self.entry(server) == Entry(WEIGHT)

    def is_whole(self) -> bool:
        return site.ports(self.state) is not None and all(map(self.serves_with, SERVERS))

    async def counts(self) -> Counts:
        return msgspec.convert(await self._told("lab", "client", "counts"), Counts)

    async def warm_up(self) -> str | None:
        """Where the balancer is in its warm-up; None while it does not answer."""
        said = await ask(self._socket(f"{BALANCER}/{ROLE}"), Request("tell", {"do": "balancer"}, "vips"), timeout=2.0)
        return None if said.error else str(said.result["warm_up"])

    async def order(self, server: str, do: str) -> Any:
        """`halt` or `serve`, to one of the web servers."""
        return await self._told("lab", "web", do, name=server)

    async def backend(self, server: str, do: str, **more: object) -> Any:
        """What `holdfast backend` does."""
        return await self._told(f"{BALANCER}/{ROLE}", "vips", "backend", do=do, name=server, **more)

    async def used(self, requests: int) -> Counts:
        """Waits until the client has made so many requests more; its counts then."""
        goal = (await self.counts()).requests + requests
        began = CLOCK.now()
        while (counts := await self.counts()).requests < goal:
            if CLOCK.now() - began > PATIENCE:
                raise Broken(f"the client made fewer than {requests} requests in {PATIENCE.total_seconds():g} s")
            await asyncio.sleep(0.05)
        return counts

    async def _told(self, role: str, worker: str, command: str, **args: object) -> Any:
        said = await ask(self._socket(role), Request("tell", {"do": command, "args": args}, worker))
        if said.error:
            raise Broken(f"{worker} does not answer ({said.error}): wait until holdfast status is healthy")
        return said.result

    def _socket(self, role: str) -> Path:
        return self.lab.folder / "run" / f"{role}.sock"


async def _ready(lab: Lab) -> tuple[Site, Counts]:
    """The site once all serve and the client has used it."""
    stage = Site(lab)
    await until("all of the web servers serving", stage.is_whole)
    return stage, await stage.used(1)


def _said(before: Counts, after: Counts) -> str:
    return f"{after.failed - before.failed} of {after.requests - before.requests:,} requests failed"


def none_failed(before: Counts, after: Counts) -> None:
    promise(after.failed == before.failed, f"no request fails (the last one that did: {after.why})")


async def balancer_restart(lab: Lab, say: Say, seconds: float) -> None:
    """SIGKILL for the whole balancer; it is started again and finds the dataplane as it was."""
    stage, before = await _ready(lab)
    writes, held = stage.programmed().writes, dict(stage.programmed().objects)
    pids = lab.tree(BALANCER, ROLE)
    send(pids, signal.SIGKILL)
    say(f"killed the balancer: {len(pids)} processes, SIGKILL; {len(held) - 1} backends were programmed")
    back = await until("the balancer coming back", lambda: lab.is_up(BALANCER, ROLE, not_as=pids))
    say(f"it was started again and is back after {back.total_seconds():.2f} s")
    began = CLOCK.now()
    while await stage.warm_up() != "over":
        if CLOCK.now() - began > PATIENCE:
            raise Broken(f"the warm-up was not over within {PATIENCE.total_seconds():g} s")
        await asyncio.sleep(0.1)
    warm = CLOCK.now() - began
    after = await stage.used(_WATCHED)
    now = stage.programmed()
    made = now.writes - writes
    say(f"its warm-up is over {warm.total_seconds():.2f} s later: {made} dataplane writes; {_said(before, after)}")
    promise(now.writes == writes and now.objects == held, "a restart makes no dataplane write")
    none_failed(before, after)


async def backend_down(lab: Lab, say: Say, seconds: float) -> None:
    """One backend stops, and comes back."""
    stage, before = await _ready(lab)
    cut = await stage.order(_VICTIM, "halt")
    try:
        say(f"stopped {_VICTIM}; that cut {cut} open connections")
        out = await until(f"{_VICTIM} losing its weight", lambda: _weight(stage, _VICTIM) == 0)
        flushed = out + await until(f"the flush of {_VICTIM}", lambda: stage.entry(_VICTIM) == Entry(0, kill=True))
        settled = await stage.used(2 * FLOWS)
        say(
            f"weight 0 after {out.total_seconds():.2f} s, its flows ended after {flushed.total_seconds():.2f} s; "
            f"until then {_said(before, settled)}"
        )
        promise(out <= _DETECTED, f"a dead backend is out within {_DETECTED.total_seconds():g} s")
        without = await stage.used(_WATCHED)
        say(f"without it {_said(settled, without)}")
        none_failed(settled, without)
    finally:
        await stage.order(_VICTIM, "serve")
    back = await until(f"{_VICTIM} coming back", lambda: stage.serves_with(_VICTIM))
    after = await stage.used(_WATCHED)
    say(f"started {_VICTIM} again: it serves after {back.total_seconds():.2f} s; {_said(without, after)}")
    none_failed(without, after)


def _weight(stage: Site, server: str) -> int | None:
    entry = stage.entry(server)
    return None if entry is None else entry.weight


async def drain(lab: Lab, say: Say, seconds: float) -> None:
    """An operator pauses a backend: new flows leave it, the established ones end by themselves."""
    stage, before = await _ready(lab)
    ends = stage.programmed().ends.get(stage.key(_VICTIM), 0)
    await stage.backend(_VICTIM, "pause", reason="lab break drain")
    try:
        out = await until(f"{_VICTIM} losing its weight", lambda: _weight(stage, _VICTIM) == 0)
        # A flow that was opened before counts as opened when it is answered first.
        paused = await stage.used(2 * FLOWS)
        going_on = paused.established.get(_VICTIM, 0)
        say(f"paused {_VICTIM}: weight 0 after {out.total_seconds():.2f} s, {going_on} flows go on")
        empty = await _emptied(stage, _VICTIM)
        drained = await stage.used(_WATCHED)
        opened = drained.opened.get(_VICTIM, 0) - paused.opened.get(_VICTIM, 0)
        cut = stage.programmed().ends.get(stage.key(_VICTIM), 0) - ends
        say(
            f"its last flow ended by itself {empty.total_seconds():.2f} s later: {opened} new flows, "
            f"{drained.ended - before.ended} were cut; {_said(before, drained)}"
        )
        promise(opened == 0, f"a paused backend gets no new flow, but it got {opened}")
        promise(cut == 0 and drained.ended == before.ended, "a pause ends no established flow")
        none_failed(before, drained)
    finally:
        await stage.backend(_VICTIM, "resume")
    back = await until(f"{_VICTIM} coming back", lambda: stage.serves_with(_VICTIM))
    after = await stage.used(_WATCHED)
    say(f"resumed {_VICTIM}: it serves after {back.total_seconds():.2f} s; {_said(drained, after)}")
    none_failed(drained, after)


async def _emptied(stage: Site, backend: str) -> Duration:
    """Waits until the client has no flow to that backend left."""
    began = CLOCK.now()
    while (await stage.counts()).established.get(backend):
        if CLOCK.now() - began > PATIENCE:
            raise Broken(f"flows to {backend} were left after {PATIENCE.total_seconds():g} s")
        await asyncio.sleep(0.05)
    return CLOCK.now() - began


SCENES: Mapping[str, Scene] = {
    "balancer-restart": balancer_restart,
    "backend-down": backend_down,
    "drain": drain,
}
