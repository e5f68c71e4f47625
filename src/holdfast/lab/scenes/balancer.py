"""Scenes of the balancer: it is killed, a backend dies, an operator drains a backend, the dataplane is wiped.

The dataplane counts the writes made to it, and the lab's client, which sends requests to the VIP all the time, counts
failures. Each scene reads both before and after; nothing is assumed.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast.balancer.vip import BackendEntry, shown
from holdfast.lab.fleet import layout, web
from holdfast.lab.fleet.balancer import BALANCER, ROLE
from holdfast.lab.fleet.client import FLOWS
from holdfast.lab.fleet.netns import Programmed
from holdfast.lab.fleet.vips_file import VipsFile
from holdfast.lab.fleet.web import FALL, INTERVAL, WEIGHT
from holdfast.lab.scenes.stage import Broken, Lab, Say, Scene, limit_s, obtain, promise, send, until
from holdfast.model.base.time import Duration
from holdfast.testing.real.anycast import SERVERS
from holdfast.testing.real.flows import FlowCounts

_DETECTED = (FALL + 1) * INTERVAL + Duration(seconds=4)
"""A backend that refuses connections is out after `fall` probes; the rest is for a busy machine."""
_WATCHED = 10 * FLOWS
"""Requests that must not fail afterwards."""
_VICTIM = "web-2"
_RESTORED = Duration(seconds=5)
"""A dataplane is checked once a second, or at every comparison; the rest is for a busy machine."""


@dataclass(frozen=True, slots=True)
class WebSite:
    """The web site of a running lab, seen from outside."""

    lab: Lab

    @property
    def state(self) -> Path:
        return self.lab.state

    async def programmed(self) -> Programmed:
        """Read the dataplane: the lab's file, or the kernel through the client."""
        if layout.namespaces(self.state):
            return msgspec.convert(await self._ask("lab", "client", "programmed"), Programmed)
        found = VipsFile(path=layout.vips_file(self.state))
        found.load()
        entries = {shown(key.backend): entry for key, entry in found.entries.items()}
        return Programmed(found.writes, entries, {shown(key.backend): count for key, count in found.ends.items()})

    async def wipe(self) -> None:
        """Empty the dataplane without telling the balancer."""
        if layout.namespaces(self.state):
            await self._ask("lab", "client", "wipe")
        else:
            layout.vips_file(self.state).unlink()

    async def entry(self, server: str) -> BackendEntry | None:
        return (await self.programmed()).entries.get(self.address(server))

    def address(self, server: str) -> str:
        """Return that server's ADDRESS:PORT as a dataplane shows it."""
        return shown(web.entry(self.state, server).backend)

    async def has(self, server: str, entry: BackendEntry) -> bool:
        return await self.entry(server) == entry

    async def is_out(self, server: str) -> bool:
        """Return True if that server is programmed with weight 0."""
        entry = await self.entry(server)
        return entry is not None and entry.weight == 0

    async def is_complete(self) -> bool:
        """Return True if all servers have their weight, and the client answers."""
        if web.addresses(self.state) is None:
            return False
        try:
            entries = (await self.programmed()).entries
            await self.counts()
        except Broken:  # the lab was just started, and its client does not run yet
            return False
        return all(entries.get(self.address(server)) == BackendEntry(WEIGHT) for server in SERVERS)

    async def counts(self) -> FlowCounts:
        return msgspec.convert(await self._ask("lab", "client", "counts"), FlowCounts)

    async def is_warm(self) -> bool:
        """Return True if the balancer answers and its warm-up is over."""
        answer = await self.lab.ask(f"{BALANCER}/{ROLE}", "vips", "balancer", timeout=2.0)
        return not answer.error and bool(answer.result["warm_up"] == "over")

    async def is_drained(self, server: str) -> bool:
        """Return True if the client has no flow to that server."""
        return not (await self.counts()).established.get(server)

    async def order(self, server: str, command: str) -> Any:
        """Send `halt` or `serve` to one of the web servers."""
        return await self._ask("lab", "web", command, name=server)

    async def backend(self, server: str, action: str, **more: object) -> Any:
        """Do what `holdfast ACTION backend` does."""
        return await self._ask(f"{BALANCER}/{ROLE}", "vips", "backend", do=action, name=server, **more)

    async def after(self, requests: int) -> FlowCounts:
        """Wait until the client has sent so many more requests, and return its counts."""
        goal = (await self.counts()).requests + requests

        async def read() -> FlowCounts | None:
            counts = await self.counts()
            return counts if counts.requests >= goal else None

        return await obtain(f"{requests} more requests of the client", read)

    async def _ask(self, daemon: str, worker: str, command: str, **args: object) -> Any:
        answer = await self.lab.ask(daemon, worker, command, args)
        if answer.error:
            raise Broken(f"{worker} does not answer ({answer.error}): wait until holdfast status is healthy")
        return answer.result


async def _ready(lab: Lab) -> tuple[WebSite, FlowCounts]:
    """Wait until all web servers serve and the client has sent a request."""
    site = WebSite(lab)
    await until("all web servers to serve", site.is_complete)
    return site, await site.after(1)


def _failures(before: FlowCounts, after: FlowCounts) -> str:
    return f"{after.failed - before.failed} of {after.requests - before.requests:,} requests failed"


def none_failed(before: FlowCounts, after: FlowCounts) -> None:
    promise(after.failed == before.failed, f"no request fails (last failure: {after.why})")


async def balancer_restart(lab: Lab, say: Say, seconds: float) -> None:
    """Kill the balancer (SIGKILL); the lab restarts it."""
    site, before = await _ready(lab)
    programmed = await site.programmed()
    pids = lab.tree(BALANCER, ROLE)
    send(pids, signal.SIGKILL)
    say(f"killed the balancer: {len(pids)} processes, SIGKILL; {len(programmed.entries)} backends were programmed")
    back = await until("the balancer to come back", lambda: lab.is_up(BALANCER, ROLE, not_as=pids))
    say(f"it was restarted and is back after {back.total_seconds():.2f} s")
    warm = await until("the end of its warm-up", site.is_warm)
    after, now = await site.after(_WATCHED), await site.programmed()
    made = now.writes - programmed.writes
    say(f"its warm-up is over {warm.total_seconds():.2f} s later: {made} dataplane writes; {_failures(before, after)}")
    promise(now == programmed, "a restart makes no dataplane write")
    none_failed(before, after)


async def backend_down(lab: Lab, say: Say, seconds: float) -> None:
    """Stop one backend, and start it again."""
    site, before = await _ready(lab)
    reset = await site.order(_VICTIM, "halt")
    try:
        say(f"stopped {_VICTIM}, which reset {reset} open connections")
        out = await until(f"weight 0 for {_VICTIM}", partial(site.is_out, _VICTIM))
        killed = BackendEntry(0, kill=True, base=WEIGHT)
        flushed = out + await until(f"the flush of {_VICTIM}", partial(site.has, _VICTIM, killed))
        settled = await site.after(2 * FLOWS)
        say(
            f"weight 0 after {out.total_seconds():.2f} s, its flows ended after {flushed.total_seconds():.2f} s; "
            f"until then {_failures(before, settled)}"
        )
        promise(out <= _DETECTED, f"a dead backend is out within {_DETECTED.total_seconds():g} s")
        without = await site.after(_WATCHED)
        say(f"without it {_failures(settled, without)}")
        none_failed(settled, without)
    finally:
        await site.order(_VICTIM, "serve")
    back = await until(f"{_VICTIM} to serve again", partial(site.has, _VICTIM, BackendEntry(WEIGHT)))
    after = await site.after(_WATCHED)
    say(f"restarted {_VICTIM}: it serves after {back.total_seconds():.2f} s; {_failures(without, after)}")
    none_failed(without, after)


async def backend_drain(lab: Lab, say: Say, seconds: float) -> None:
    """Pause a backend: it gets no new flow, and its established flows go on."""
    site, before = await _ready(lab)
    ends = (await site.programmed()).ends
    await site.backend(_VICTIM, "pause", reason="lab break drain")
    try:
        out = await until(f"weight 0 for {_VICTIM}", partial(site.is_out, _VICTIM))
        # A flow that connected before the pause counts as opened only at its first answer.
        paused = await site.after(2 * FLOWS)
        established = paused.established.get(_VICTIM, 0)
        say(f"paused {_VICTIM}: weight 0 after {out.total_seconds():.2f} s, {established} flows still established")
        empty = await until(f"the end of the flows to {_VICTIM}", partial(site.is_drained, _VICTIM))
        drained = await site.after(_WATCHED)
        opened = drained.opened.get(_VICTIM, 0) - paused.opened.get(_VICTIM, 0)
        say(
            f"its last flow ended by itself {empty.total_seconds():.2f} s later: {opened} new flows, "
            f"{drained.ended - before.ended} were cut; {_failures(before, drained)}"
        )
        promise(opened == 0, f"a paused backend gets no new flow, but it got {opened}")
        untouched = (await site.programmed()).ends == ends and drained.ended == before.ended
        promise(untouched, "a pause ends no established flow")
        none_failed(before, drained)
    finally:
        await site.backend(_VICTIM, "resume")
    back = await until(f"{_VICTIM} to serve again", partial(site.has, _VICTIM, BackendEntry(WEIGHT)))
    after = await site.after(_WATCHED)
    say(f"resumed {_VICTIM}: it serves after {back.total_seconds():.2f} s; {_failures(drained, after)}")
    none_failed(drained, after)


async def dataplane_wipe(lab: Lab, say: Say, seconds: float) -> None:
    """Delete everything that the balancer has programmed, without telling it."""
    site, before = await _ready(lab)
    await site.wipe()
    say("deleted everything that the balancer had programmed")
    back = await until("the dataplane to be programmed again", site.is_complete)
    # Requests that were sent while there was no table may fail later, at their own timeout.
    restored = await site.after(2 * FLOWS)
    say(f"programmed again after {back.total_seconds():.2f} s; until then {_failures(before, restored)}")
    promise(back <= _RESTORED, f"a wiped dataplane is programmed again within {_RESTORED.total_seconds():g} s")
    after = await site.after(_WATCHED)
    say(f"since then {_failures(restored, after)}")
    none_failed(restored, after)


SCENES: Mapping[str, Scene] = {
    "balancer-restart": Scene(
        balancer_restart,
        promise="a restart makes no dataplane write, and no request of the client fails",
        limit=f"0 writes; 0 failed requests, until {_WATCHED} more were sent after the warm-up",
    ),
    "backend-down": Scene(
        backend_down,
        promise="a dead backend gets no more flows, those that it had are ended, and then no request fails",
        limit=f"weight 0 within {limit_s(_DETECTED)}; requests may fail until then, 0 after it",
    ),
    "dataplane-wipe": Scene(
        dataplane_wipe,
        promise="what was deleted behind the balancer's back is programmed again, and then no request fails",
        limit=f"within {limit_s(_RESTORED)}; requests may fail until then, 0 after it",
    ),
    "drain": Scene(
        backend_drain,
        promise="a paused backend gets no new flow, its flows end by themselves, and no request fails",
        limit="0 new flows, 0 flows cut, 0 failed requests",
    ),
}
