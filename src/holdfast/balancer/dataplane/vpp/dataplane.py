"""VPP dataplane: VIPs in the lb plugin of a running VPP.

VPP holds VIPs, servers and weights, and loses them when it restarts; then everything is compared and programmed again
(B15). Which VIPs are ours, and what VPP does not give back, is remembered in a file. VIPs that are neither remembered
nor configured belong to others and are never touched (B18). A batch is not atomic: VPP carries out request by request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from holdfast.balancer.dataplane.api import Counters, VipDataplaneInfo
from holdfast.balancer.dataplane.remembered import RememberedFields
from holdfast.balancer.dataplane.vpp import flow_table, messages, rules, stats
from holdfast.balancer.dataplane.vpp.connection import VppConnection, VppRequest
from holdfast.balancer.maglev.churn import Churn
from holdfast.balancer.maglev.table import BackendId
from holdfast.balancer.vip import NO_BACKEND, BackendEntry, Objects, Value, Vip, VipKey, VipSettings, filled
from holdfast.config.sections.vpp import VppSettings
from holdfast.reconcile import Change

_NOT_READ = frozenset({"sticky", "kill"})
"""Fields that VPP can set and does not give back."""


class VppDataplane:
    """The lb plugin behind an API socket. `memory` is the file that keeps what VPP does not give back."""

    def __init__(self, settings: VppSettings, memory: Path) -> None:
        self._settings = settings
        self._connection = VppConnection(settings.api_socket)
        self._remembered = RememberedFields(memory, _NOT_READ)
        self._configured: set[Vip] = set()
        """VIPs that were wanted since the start: ours, remembered or not."""
        self.totals: Mapping[str, int] = {}
        """Packets by what the plugin did with them, over all VIPs, when they were last counted."""

    def canonical(self, vip: Vip, objects: Objects) -> Objects:
        self._configured.add(vip)
        return rules.canonical(objects, self._settings.table_length)

    async def read(self, vips: Collection[Vip] | None = None) -> Mapping[VipKey, Value]:
        held, conf_change = await self._contents()
        asked = {key: value for key, value in sorted(held.items()) if vips is None or key.vip in vips}
        return asked if conf_change is None else {key: _damaged(value) for key, value in asked.items()}

    async def apply(self, changes: Sequence[Change[VipKey, Value]]) -> Sequence[str | None]:
        held, conf_change = await self._contents()
        steps = [step(change, held) for change in changes]
        conf = [conf_change] if changes and conf_change is not None else []
        answers = await self._connection.call([*conf, *(one for each in steps for one in each.requests)])
        said = iter([messages.sentence(answer.retval) for answer in answers])
        general = [next(said) for _ in conf]
        errors = [each.refusal or _first([next(said) for _ in each.requests]) for each in steps]
        made = [change for change, error in zip(changes, errors, strict=True) if error is None]
        await asyncio.to_thread(self._remembered.note, made)
        return [error or _first(general) for error in errors]

    async def counters(self) -> Mapping[VipKey, Counters]:
        """Packets to the address of each VIP; nothing per server. Also measures `totals`."""
        held, _ = await self._contents()
        vips = [key.vip for key in held if key.backend == NO_BACKEND]
        routes = await self._connection.query([messages.route_to(vip) for vip in vips])
        found = {vip.host: int(one.route.stats_index) for vip, one in zip(vips, routes, strict=True) if not one.retval}
        self.totals, passed = await asyncio.to_thread(stats.read, self._settings.stats_socket, found)
        return {VipKey(vip): passed[vip.host] for vip in vips if vip.host in passed}

    async def shares(self, vip: Vip) -> Mapping[BackendId, int]:
        (servers,) = await self._connection.dump("lb_as_v2_dump")
        return messages.buckets(vip, servers)

    async def lost(self) -> str:
        # protection: B15
        await self._connection.ended()
        return "VPP restarted, or did not answer for a time"

    def describe(self) -> VipDataplaneInfo:
        return VipDataplaneInfo("vpp", frozenset({"damaged"}), atomic=False, takes_table=False)

    def churn(self, before: Mapping[VipKey, Value], after: Mapping[VipKey, Value]) -> Churn:
        return flow_table.predicted(_weights(before), _weights(after), self._settings.table_length)

    @property
    def writes(self) -> int:
        """Requests sent that change something."""
        return self._connection.calls

    async def disconnect(self) -> None:
        await self._connection.disconnect()

    async def _contents(self) -> tuple[dict[VipKey, Value], VppRequest | None]:
        """Our objects, and the change that the settings of the plugin need."""
        vips, servers = await self._connection.dump("lb_vip_dump", "lb_as_v2_dump")
        (conf,) = await self._connection.query([VppRequest("lb_conf_get")])
        found = {key: value for key, value in messages.read(vips, servers).items() if self._is_ours(key.vip)}
        return self._remembered.merged(found), messages.conf_change(conf, self._settings)

    def _is_ours(self, vip: Vip) -> bool:  # protection: B18
        return vip in self._configured or vip in self._remembered.vips


class Step(NamedTuple):
    """Requests for one change, or the reason why there are none."""

    requests: Sequence[VppRequest] = ()
    refusal: str | None = None


def step(change: Change[VipKey, Value], held: dict[VipKey, Value]) -> Step:
    """Return what to send for a change, given what VPP holds; `held` then has the change. Pure."""
    key, before = change.key, held.get(change.key)
    refusal = rules.refusal_of_held(held.get(VipKey(key.vip)))
    if refusal is not None:
        return Step(refusal=refusal)
    if change.new is None:
        gone = [one for one in sorted(held, reverse=True) if key in (one, VipKey(one.vip))]  # servers before their VIP
        for one in gone:
            del held[one]
        return Step([_delete(one) for one in gone])
    after = change.new.value
    refusal = _refusal(key, after, before, held)
    if refusal is not None:
        return Step(refusal=refusal)
    held[key] = after
    if isinstance(after, VipSettings):
        return Step([messages.add_vip(key.vip, after)] if before is None else [])
    if not isinstance(before, BackendEntry):
        added = messages.add_server(key, after)
        return Step([added, messages.set_weight(key, after)] if after.kill else [added])
    is_due = before.weight != after.weight or (after.kill and not before.kill)  # protection: B6
    return Step([messages.set_weight(key, after)] if is_due else [])


def _refusal(key: VipKey, after: Value, before: Value | None, held: Mapping[VipKey, Value]) -> str | None:
    if isinstance(after, VipSettings):
        now = None if before is None else filled(before, after)
        if isinstance(now, VipSettings) and replace(now, damaged=after.damaged) != after:
            return "VPP cannot change this attribute of a VIP: delete and create it"
        return rules.refusal_of(key.vip, after)
    return None if VipKey(key.vip) in held else "there is no such VIP"


def _delete(key: VipKey) -> VppRequest:
    return messages.delete_vip(key.vip) if key.backend == NO_BACKEND else messages.delete_server(key)


def _damaged(value: Value) -> Value:
    """VIPs of a plugin with other settings than ours need a write, which sets these."""
    return replace(value, damaged=True) if isinstance(value, VipSettings) else value


def _weights(objects: Mapping[VipKey, Value]) -> dict[BackendId, int]:
    return {key.backend: value.weight for key, value in objects.items() if isinstance(value, BackendEntry)}


def _first(sentences: Iterable[str | None]) -> str | None:
    return next(filter(None, sentences), None)
