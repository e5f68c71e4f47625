"""Scenes of the balancer: it dies, a backend dies, an operator takes a backend out, somebody empties the dataplane.

The dataplane tells what was written to it, and the lab's client, which uses the VIP all the time, tells which requests
failed. Both are asked before and after; nothing is assumed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast.balancer.vip import BackendEntry, shown
from holdfast.lab.fleet import netns
from holdfast.lab.fleet import web as site
from holdfast.lab.fleet.balancer import BALANCER, ROLE
from holdfast.lab.fleet.client import FLOWS
from holdfast.lab.fleet.netns import Programmed
from holdfast.lab.fleet.vips_file import VipsFile
from holdfast.lab.fleet.web import FALL, INTERVAL, SERVERS, WEIGHT
from holdfast.lab.scenes.stage import CLOCK, PATIENCE, Broken, Lab, Say, Scene, promise, send, until
from holdfast.model.base.time import Duration
from holdfast.runtime.control import Request, ask
from holdfast.testing.real.flows import FlowCounts

_DETECTED = (FALL + 1) * INTERVAL + Duration(seconds=4)
"""A backend that refuses is out after `fall` probes; the rest is for a busy machine."""
_WATCHED = 10 * FLOWS
"""Requests that must not fail afterwards."""
_VICTIM = "web-2"
_RESTORED = Duration(seconds=5)
"""A dataplane is looked at once a second, or as often as it is compared; the rest is for a busy machine."""


@dataclass(frozen=True, slots=True)
class Site:
    """The web site of a running lab, seen from outside."""

    lab: Lab

    @property
    def state(self) -> Path:
        return self.lab.folder / "state"

    async def programmed(self) -> Programmed:
        """The dataplane as it is now: the lab's file, or the kernel by the client's word."""
        if netns.namespaces(self.state):
            return msgspec.convert(await self._told("lab", "client", "programmed"), Programmed)
        found = VipsFile(path=site.vips_file(self.state))
        found.load()
        entries = {shown(key.backend): entry for key, entry in found.entries.items()}
        return Programmed(found.writes, entries, {shown(key.backend): count for key, count in found.ends.items()})

    async def wipe(self) -> None:
        """Empties the dataplane behind the balancer's back."""
        if netns.namespaces(self.state):
            await self._told("lab", "client", "wipe")
        else:
            site.vips_file(self.state).unlink()

    async def entry(self, server: str) -> BackendEntry | None:
        return (await self.programmed()).entries.get(self.place(server))

    def place(self, server: str) -> str:
        """Where that server is, as a dataplane shows it."""
        return shown(site.entry(self.state, server).backend)

    async def has(self, server: str, entry: BackendEntry) -> bool:
        return await self.entry(server) == entry

    async def is_out(self, server: str) -> bool:
        """Whether it has lost its weight."""
        entry = await self.entry(server)
        return entry is not None and entry.weight == 0

    async def is_whole(self) -> bool:
        if site.places(self.state) is None:
            return False
        try:
            entries = (await self.programmed()).entries
            await self.counts()
        except Broken:  # a lab that was just started, whose client is not there yet
            return False
        return all(entries.get(self.place(server)) == BackendEntry(WEIGHT) for server in SERVERS)

    async def counts(self) -> FlowCounts:
        return msgspec.convert(await self._told("lab", "client", "counts"), FlowCounts)

    async def is_warm(self) -> bool:
        """Whether the balancer answers, and its warm-up is over."""
        said = await ask(self._socket(f"{BALANCER}/{ROLE}"), Request("tell", {"do": "balancer"}, "vips"), timeout=2.0)
        return not said.error and bool(said.result["warm_up"] == "over")

    async def is_left(self, server: str) -> bool:
        """Whether the client has no flow to that server."""
        return not (await self.counts()).established.get(server)

    async def order(self, server: str, do: str) -> Any:
        """`halt` or `serve`, to one of the web servers."""
        return await self._told("lab", "web", do, name=server)

    async def backend(self, server: str, do: str, **more: object) -> Any:
        """What `holdfast backend` does."""
        return await self._told(f"{BALANCER}/{ROLE}", "vips", "backend", do=do, name=server, **more)

    async def used(self, requests: int) -> FlowCounts:
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


async def _until(what: str, look: Callable[[], Awaitable[bool]]) -> Duration:
    """Waits for something to be so; how long that took."""
    began = CLOCK.now()
    while not await look():
        if CLOCK.now() - began > PATIENCE:
            raise Broken(f"{what} did not happen within {PATIENCE.total_seconds():g} s")
        await asyncio.sleep(0.02)
    return CLOCK.now() - began


async def _ready(lab: Lab) -> tuple[Site, FlowCounts]:
    """The site once all serve and the client has used it."""
    stage = Site(lab)
    await _until("all of the web servers serving", stage.is_whole)
    return stage, await stage.used(1)


def _said(before: FlowCounts, after: FlowCounts) -> str:
    return f"{after.failed - before.failed} of {after.requests - before.requests:,} requests failed"


def none_failed(before: FlowCounts, after: FlowCounts) -> None:
    promise(after.failed == before.failed, f"no request fails (the last one that did: {after.why})")


async def balancer_restart(lab: Lab, say: Say, seconds: float) -> None:
    """SIGKILL for the whole balancer; it is started again and finds the dataplane as it was."""
    stage, before = await _ready(lab)
    held = await stage.programmed()
    pids = lab.tree(BALANCER, ROLE)
    send(pids, signal.SIGKILL)
    say(f"killed the balancer: {len(pids)} processes, SIGKILL; {len(held.entries)} backends were programmed")
    back = await until("the balancer coming back", lambda: lab.is_up(BALANCER, ROLE, not_as=pids))
    say(f"it was started again and is back after {back.total_seconds():.2f} s")
    warm = await _until("the end of its warm-up", stage.is_warm)
    after, now = await stage.used(_WATCHED), await stage.programmed()
    made = now.writes - held.writes
    say(f"its warm-up is over {warm.total_seconds():.2f} s later: {made} dataplane writes; {_said(before, after)}")
    promise(now == held, "a restart makes no dataplane write")
    none_failed(before, after)


async def backend_down(lab: Lab, say: Say, seconds: float) -> None:
    """One backend stops, and comes back."""
    stage, before = await _ready(lab)
    cut = await stage.order(_VICTIM, "halt")
    try:
        say(f"stopped {_VICTIM}; that cut {cut} open connections")
        out = await _until(f"{_VICTIM} losing its weight", partial(stage.is_out, _VICTIM))
        ended = partial(stage.has, _VICTIM, BackendEntry(0, kill=True))
        flushed = out + await _until(f"the flush of {_VICTIM}", ended)
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
    back = await _until(f"{_VICTIM} coming back", partial(stage.has, _VICTIM, BackendEntry(WEIGHT)))
    after = await stage.used(_WATCHED)
    say(f"started {_VICTIM} again: it serves after {back.total_seconds():.2f} s; {_said(without, after)}")
    none_failed(without, after)


async def drain(lab: Lab, say: Say, seconds: float) -> None:
    """An operator pauses a backend: new flows leave it, the established ones end by themselves."""
    stage, before = await _ready(lab)
    ends = (await stage.programmed()).ends
    await stage.backend(_VICTIM, "pause", reason="lab break drain")
    try:
        out = await _until(f"{_VICTIM} losing its weight", partial(stage.is_out, _VICTIM))
        # A flow that was opened before counts as opened when it is answered first.
        paused = await stage.used(2 * FLOWS)
        going_on = paused.established.get(_VICTIM, 0)
        say(f"paused {_VICTIM}: weight 0 after {out.total_seconds():.2f} s, {going_on} flows go on")
        empty = await _until(f"the end of the flows to {_VICTIM}", partial(stage.is_left, _VICTIM))
        drained = await stage.used(_WATCHED)
        opened = drained.opened.get(_VICTIM, 0) - paused.opened.get(_VICTIM, 0)
        say(
            f"its last flow ended by itself {empty.total_seconds():.2f} s later: {opened} new flows, "
            f"{drained.ended - before.ended} were cut; {_said(before, drained)}"
        )
        promise(opened == 0, f"a paused backend gets no new flow, but it got {opened}")
        untouched = (await stage.programmed()).ends == ends and drained.ended == before.ended
        promise(untouched, "a pause ends no established flow")
        none_failed(before, drained)
    finally:
        await stage.backend(_VICTIM, "resume")
    back = await _until(f"{_VICTIM} coming back", partial(stage.has, _VICTIM, BackendEntry(WEIGHT)))
    after = await stage.used(_WATCHED)
    say(f"resumed {_VICTIM}: it serves after {back.total_seconds():.2f} s; {_said(drained, after)}")
    none_failed(drained, after)


async def dataplane_wipe(lab: Lab, say: Say, seconds: float) -> None:
    """Somebody deletes all that the balancer has programmed."""
    stage, before = await _ready(lab)
    await stage.wipe()
    say("deleted all that the balancer had programmed, behind its back")
    back = await _until("the dataplane being programmed again", stage.is_whole)
    # What was begun while there was no table may have failed, and tells so within its own time.
    restored = await stage.used(2 * FLOWS)
    say(f"programmed again after {back.total_seconds():.2f} s; until then {_said(before, restored)}")
    promise(back <= _RESTORED, f"an emptied dataplane is programmed again within {_RESTORED.total_seconds():g} s")
    after = await stage.used(_WATCHED)
    say(f"since then {_said(restored, after)}")
    none_failed(restored, after)


SCENES: Mapping[str, Scene] = {
    "balancer-restart": balancer_restart,
    "backend-down": backend_down,
    "dataplane-wipe": dataplane_wipe,
    "drain": drain,
}
