"""Writer of the setup of workloads' interfaces."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.agent.claims import ClaimKey, Shape, interface_name
from holdfast.agent.dataplane.linux.context import LinuxContext, Refused, sentence
from holdfast.agent.dataplane.linux.interfaces import GATEWAY, gateway_address, setup_knobs
from holdfast.netlink import ifaddr
from holdfast.netlink.socket import NetlinkError, is_gone


class InterfaceWriter:
    def make(self, context: LinuxContext, family: int, wanted: Sequence[tuple[ClaimKey, Shape]]) -> Refused:
        context.devices.workloads.update(interface_name(key) for key, _ in wanted)
        for uplink in sorted(context.devices.uplinks()):
            context.devices.forwarding.switch_on(family, uplink)
        answers = ((key, self._make(context, family, interface_name(key))) for key, _ in wanted)
        return {key: refusal for key, refusal in answers if refusal is not None}

    def remove(self, context: LinuxContext, family: int, keys: Sequence[ClaimKey]) -> Refused:
        """Delete the address. Settings stay: nobody knows what else relies on them by now."""
        refused: Refused = {}
        for key in keys if family == 6 else ():
            link = context.devices.links.get(interface_name(key))
            if link is None or key not in context.snapshot.shapes:
                continue
            try:
                ifaddr.remove(context.kernel, gateway_address(link.number, context.settings))
            except NetlinkError as error:
                if not is_gone(error.errno or 0) and error.errno != ifaddr.NOT_THERE:
                    refused[key] = sentence(error.errno or 0, error.strerror or "")
        return refused

    def _make(self, context: LinuxContext, family: int, name: str) -> str | None:
        reason = context.devices.blocked_by(name)
        if reason is not None:
            return reason
        refusal = context.devices.forwarding.set(setup_knobs(context.devices, family, name))
        if refusal is not None or family == 4:
            return refusal
        try:
            address = gateway_address(context.devices.links[name].number, context.settings)
            ifaddr.add(context.kernel, address, replace=True)
        except NetlinkError as error:
            return f"cannot give {name} the address {GATEWAY[6]}: {sentence(error.errno or 0, error.strerror or '')}"
        return None
