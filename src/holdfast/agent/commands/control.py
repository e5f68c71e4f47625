"""What a running agent answers: its report, its peers, what waits, and why a host is as it is. Thin: it only asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.agent.claims import Claim, ClaimKey
from holdfast.agent.commands.trace_route import trace
from holdfast.agent.commands.views import AgentView
from holdfast.agent.desired.migrations import Arrival
from holdfast.agent.reconciler import AgentReconciler
from holdfast.agent.report.endpoint_states import states
from holdfast.agent.report.summary import AgentDetails, AgentSummary, Moment
from holdfast.model.base.address import AddressRefused, interface
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.endpoint import Endpoint, EndpointName
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.reconcile import Outstanding, Owned
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.store.identity import StoreVerdict

_COUNT_EVERY = Duration(seconds=10)


class AgentCommands:
    def __init__(self, keeper: AgentReconciler, host: str, boot_id: str, clock: Clock) -> None:
        self._keeper = keeper
        self._host = host
        self._boot_id = boot_id
        self._clock = clock
        self._unregistered = NEVER
        self._counted = NEVER
        self._well: Mapping[str, int] = {}
        self.addresses: tuple[str, ...] = ()
        """Of this host, as its kernel shows them."""
        self.tunnel_macs: tuple[str, ...] = ()
        """Of this host's ends of the tunnels, as others know them."""

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "report": self._report,
            "about": self._about,
            "peers": self._peers,
            "pending": self._pending,
            "explain": self._explain,
        }

    def endpoints(self) -> Mapping[EndpointName, EndpointState] | None:
        """How this host's endpoints are; None while not every source has said which there are, or is known as ours."""
        keeper = self._keeper
        complete = all(one.synced.revision is not None for one in keeper.followings)
        if not complete or not keeper.reconciler.passes or not self._is_ours():
            return None
        obstacle = keeper.kernel.dataplane.obstacle
        return states(self._local(), keeper.present.claims, keeper.reconciler.ledger.outstanding, obstacle)

    def knows_all_endpoints(self) -> bool:
        """Whether none is missing in `endpoints` because its value cannot be read (C39)."""
        return not any(one.synced.unreadable for one in self._keeper.followings)

    def _local(self) -> list[Endpoint]:
        return [one for following in self._keeper.followings for one in following.demand.local()]

    async def _report(self, _request: Request, _who: Who) -> Any:
        at = Moment(self._clock.now(), self._clock.wall())
        standing = self._standing(at.now)
        if at.now - self._counted >= _COUNT_EVERY:
            self._counted, self._well = at.now, standing.kept()
        return msgspec.to_builtins(replace(standing, well=self._well).report(at))

    async def _about(self, _request: Request, _who: Who) -> Any:
        return msgspec.to_builtins(self._told(self._clock.now()))

    def _told(self, now: Instant) -> AgentDetails:
        keeper, standing = self._keeper, self._standing(now)
        return AgentDetails(
            host=self._host,
            dataplane=keeper.kernel.dataplane.describe().name,
            sources=standing.keeping(now),
            registered=self._registered(),
            disputes=keeper.sources.disputes(),
            counts=standing.counts(),
            pending_deletes=standing.pending_deletes,
        )

    async def _peers(self, _request: Request, _who: Who) -> Any:
        return msgspec.to_builtins(self._picture().peers(self._host))

    async def _pending(self, _request: Request, _who: Who) -> Any:
        deletions = self._keeper.kernel.deletions
        return msgspec.to_builtins(self._picture().pending({key: deletions.statuses(key) for key in deletions}))

    async def _explain(self, request: Request, _who: Who) -> Any:
        name = str(request.args.get("name", ""))
        if request.args.get("kind") == "route":
            return self._explain_route(name)
        if request.args.get("kind") == "endpoint":
            return {"host": self._host, "endpoints": [one for one in self._endpoints() if name in one["names"]]}
        if request.args.get("kind") != "host":
            raise Declined("an agent explains hosts, endpoints and routes: holdfast explain host NAME")
        picture, about = self._picture(), self._told(self._clock.now())
        endpoints = self._endpoints() if name == self._host else []
        return {
            **msgspec.to_builtins(about),
            "self": name == self._host,
            "peer": msgspec.to_builtins(next((one for one in picture.peers(self._host) if one.host == name), None)),
            "objects": msgspec.to_builtins(picture.objects(name)),
            "endpoints": {one["names"][0]: one["state"] for one in endpoints},
            "arrivals": {one["names"][0]: one["arrival"] for one in endpoints if one["arrival"]},
        }

    def _endpoints(self) -> list[dict[str, Any]]:
        """The endpoints that are here or arrive here, by what they are called: with this host, and without."""
        arrivals = self._arrivals()
        return [
            {
                "names": [str(name), name.individual],
                "state": state.value,
                "arrival": str(arrivals.get(name.individual, "")),
            }
            for name, state in sorted((self.endpoints() or {}).items())
        ]

    def _explain_route(self, address: str) -> Any:
        try:
            found = trace(self._picture(), interface(address))
        except AddressRefused as refused:
            raise Declined(str(refused)) from refused
        return {"host": self._host, "trace": msgspec.to_builtins(found)}

    def _standing(self, now: Instant) -> AgentSummary:
        keeper = self._keeper
        if self._registered() is not False:
            self._unregistered = NEVER
        elif not self._unregistered:
            self._unregistered = now
        return AgentSummary(
            version=__version__,
            boot_id=self._boot_id,
            host=self._host,
            stories=list(keeper.reconciler.ledger),
            sources=keeper.sync.sources,
            present=keeper.present.claims,
            pending_deletes=len(keeper.kernel.deletions),
            unregistered_since=self._unregistered or None,
            addresses=self.addresses,
            tunnel_macs=self.tunnel_macs,
        )

    def _registered(self) -> bool | None:
        """Whether a source knows this host; None before all have spoken, and while a store is not known to be ours."""
        known = [one.host(self._host) for one in self._keeper.followings]
        return None if None in known or not self._is_ours() else any(known)

    def _is_ours(self) -> bool:
        """Whether every store is known to be the one that this host belongs to."""
        verdicts = [one.judgement and one.judgement.verdict for one in self._keeper.belonging.known.values()]
        return set(verdicts) == {StoreVerdict.OURS}

    def _picture(self) -> AgentView:
        keeper = self._keeper
        wanted: Mapping[ClaimKey, Owned[Claim]] = keeper.sources.among(keeper.sources.keys())
        stories: Mapping[ClaimKey, Outstanding[ClaimKey, Claim]] = {
            story.change.key: story for story in keeper.reconciler.ledger
        }
        return AgentView(keeper.present.claims, wanted, stories, self._clock.now(), self._arrivals())

    def _arrivals(self) -> Mapping[str, Arrival]:
        found = [one for following in self._keeper.followings for one in following.demand.arrivals()]
        return {one.endpoint.name.individual: one for one in found}
