"""Control commands of a running agent: its report, its peers, pending deletes, and explanations of hosts and routes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from holdfast import __version__
from holdfast.agent.claims import Claim, ClaimKey
from holdfast.agent.commands.trace_route import trace
from holdfast.agent.commands.views import AgentView
from holdfast.agent.desired.migrations import Arrival
from holdfast.agent.desired.slim_endpoint import SlimEndpoint
from holdfast.agent.reconciler import AgentReconciler
from holdfast.agent.report.endpoint_states import states
from holdfast.agent.report.summary import AgentDetails, AgentSummary, Moment
from holdfast.model.base.address import AddressRefused, interface
from holdfast.model.base.time import NEVER, Duration, Instant
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.reconcile import Outstanding, Owned
from holdfast.runtime.clock import Clock
from holdfast.runtime.control import Declined, Handler, Request, Who
from holdfast.store.identity import StoreVerdict

_OURS = (StoreVerdict.OURS, StoreVerdict.INVENTORY_RESTORED)
_REFILLED = (StoreVerdict.FILLING, StoreVerdict.RESTORED)
_COUNT_INTERVAL = Duration(seconds=10)


class AgentCommands:
    def __init__(
        self,
        reconciler: AgentReconciler,
        host: str,
        boot_id: str,
        clock: Clock,
        addresses: Callable[[], tuple[str, ...]] = tuple,
        tunnel_macs: Callable[[], tuple[str, ...]] = tuple,
        note_report: Callable[[int], None] = lambda _revision: None,
    ) -> None:
        """`addresses` gives the addresses of this host, as its kernel shows them; `tunnel_macs` the MACs of its VXLAN
        devices, as other hosts know them. `note_report` is called with the revision of each report that the reporter
        has written."""
        self._reconciler = reconciler
        self._host = host
        self._boot_id = boot_id
        self._clock = clock
        self._unregistered = NEVER
        self._counted = NEVER
        self._counts: Mapping[str, int] = {}
        self._addresses = addresses
        self._tunnel_macs = tunnel_macs
        self._note_report = note_report
        self._reported = 0
        """Revision of the last report that the reporter has written."""

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "report": self._report,
            "about": self._about,
            "peers": self._peers,
            "pending": self._pending,
            "routes": self._routes,
            "explain": self._explain,
        }

    def endpoints(self) -> Mapping[EndpointName, EndpointState] | None:
        """States of this host's endpoints; None until every source is complete, compared, and known to be ours. While a
        store is refilled only those that are up, so that they are there when the verdict on the store ends (C61)."""
        reconciler = self._reconciler
        complete = all(watcher.synced.revision is not None for watcher in reconciler.watchers)
        if not complete or not reconciler.loop.passes or not self._among(*_OURS, *_REFILLED):
            return None
        blocked_by = reconciler.target.dataplane.blocked_by
        found = states(self._local(), reconciler.present.claims, reconciler.loop.ledger.outstanding, blocked_by)
        return found if self._among(*_OURS) else only_up(found)

    def knows_all_endpoints(self) -> bool:
        """Return whether `endpoints` is complete: no value is unreadable (C39), and no store is being refilled."""
        unreadable = any(watcher.synced.unreadable for watcher in self._reconciler.watchers)
        return not unreadable and self._among(*_OURS)

    def _local(self) -> list[SlimEndpoint]:
        return [one for watcher in self._reconciler.watchers for one in watcher.claims.local()]

    async def _report(self, request: Request, who: Who) -> Any:
        reported = request.args.get("reported")
        if who.uid == os.geteuid() and isinstance(reported, int) and reported > self._reported:  # from the reporter
            self._reported = reported
            self._note_report(reported)
        at = Moment(self._clock.now(), self._clock.wall())
        summary = self._summary(at.now)
        if at.now - self._counted >= _COUNT_INTERVAL:
            self._counted, self._counts = at.now, summary.count_programmed()
        return msgspec.to_builtins(replace(summary, programmed=self._counts).report(at))

    async def _about(self, _request: Request, _who: Who) -> Any:
        return msgspec.to_builtins(self._details(self._clock.now()))

    def _details(self, now: Instant) -> AgentDetails:
        reconciler, summary = self._reconciler, self._summary(now)
        dataplane = reconciler.target.dataplane.describe()
        return AgentDetails(
            host=self._host,
            dataplane=dataplane.name,
            uplinks=dataplane.uplinks,
            sources=summary.by_source(now),
            registered=self._registered(),
            conflicts=reconciler.sources.conflicts(),
            counts=summary.counts(),
            pending_deletes=summary.pending_deletes,
            store_refusals=reconciler.identity_gate.refusals(now),
            routing=summary.routing,
            skipped_per_second=max((one.skipped.per_second for one in reconciler.watchers), default=0.0),
        )

    async def _peers(self, _request: Request, _who: Who) -> Any:
        return msgspec.to_builtins(self._view().peers(self._host))

    async def _routes(self, _request: Request, _who: Who) -> Any:
        return msgspec.to_builtins(self._view().routes())

    async def _pending(self, _request: Request, _who: Who) -> Any:
        deletes = self._reconciler.target.pending_deletes
        return msgspec.to_builtins(self._view().pending({key: deletes.statuses(key) for key in deletes}))

    async def _explain(self, request: Request, _who: Who) -> Any:
        name = str(request.args.get("name", ""))
        if request.args.get("kind") == "route":
            return self._explain_route(name)
        if request.args.get("kind") == "endpoint":
            view, found = self._view(), [one for one in self._endpoints() if name in one["names"]]
            rows = [{**one, "objects": msgspec.to_builtins(view.of_endpoint(one["names"][0]))} for one in found]
            return {"host": self._host, "endpoints": rows}
        if request.args.get("kind") != "host":
            raise Declined("an agent explains hosts, endpoints and routes: holdfast explain host NAME")
        view, details = self._view(), self._details(self._clock.now())
        endpoints = self._endpoints() if name == self._host else []
        return {
            **msgspec.to_builtins(details),
            "self": name == self._host,
            "peer": msgspec.to_builtins(next((one for one in view.peers(self._host) if one.host == name), None)),
            "objects": msgspec.to_builtins(view.objects(name)),
            "endpoints": {one["names"][0]: one["state"] for one in endpoints},
            "arrivals": {one["names"][0]: one["arrival"] for one in endpoints if one["arrival"]},
        }

    def _endpoints(self) -> list[dict[str, Any]]:
        """Endpoints that are on this host or migrate to it, with their names including and excluding the host."""
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
            found = trace(self._view(), interface(address))
        except AddressRefused as refused:
            raise Declined(str(refused)) from refused
        return {"host": self._host, "trace": msgspec.to_builtins(found)}

    def _summary(self, now: Instant) -> AgentSummary:
        reconciler = self._reconciler
        if self._registered() is not False:
            self._unregistered = NEVER
        elif not self._unregistered:
            self._unregistered = now
        return AgentSummary(
            version=__version__,
            boot_id=self._boot_id,
            host=self._host,
            outstanding=list(reconciler.loop.ledger),
            sources=reconciler.sync_gate.sources,
            refusals={watcher.name: watcher.refusal for watcher in reconciler.watchers},
            present=reconciler.present.claims,
            pending_deletes=len(reconciler.target.pending_deletes),
            unregistered_since=self._unregistered or None,
            addresses=self._addresses(),
            tunnel_macs=self._tunnel_macs(),
            store_verdict=reconciler.identity_gate.label,
            routing="bgp" if reconciler.is_bgp else "mesh",
            asks_census=reconciler.asks_census,
            store_refusals=reconciler.identity_gate.closed(now),
        )

    def _registered(self) -> bool | None:
        """Return whether a source has this host; None before all are complete, or before a store is known as ours."""
        known = [watcher.has_host(self._host) for watcher in self._reconciler.watchers]
        return None if None in known or not self._among(*_OURS) else any(known)

    def _among(self, *verdicts: StoreVerdict) -> bool:
        """Return whether the verdict on every store is one of these."""
        return all(verdict in verdicts for verdict in self._reconciler.identity_gate.verdicts().values())

    def _view(self) -> AgentView:
        reconciler = self._reconciler
        wanted: Mapping[ClaimKey, Owned[Claim]] = reconciler.sources.among(reconciler.sources.keys())
        outstanding: Mapping[ClaimKey, Outstanding[ClaimKey, Claim]] = {
            one.change.key: one for one in reconciler.loop.ledger
        }
        return AgentView(reconciler.present.claims, wanted, outstanding, self._clock.now(), self._arrivals())

    def _arrivals(self) -> Mapping[str, Arrival]:
        found = [one for watcher in self._reconciler.watchers for one in watcher.claims.arrivals()]
        return {one.endpoint.individual: one for one in found}


def only_up(found: Mapping[EndpointName, EndpointState]) -> Mapping[EndpointName, EndpointState]:  # protection: C61
    """Leave out what is down: an endpoint that came back with a backup may run elsewhere by now."""
    return {name: state for name, state in found.items() if state is EndpointState.UP}
