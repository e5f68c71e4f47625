"""State of the endpoints of this host: up, down or error. Pure.

Up means that packets for all addresses of the endpoint reach its interface. An interface that does not exist, or a
route that has still to be created, is down; a route that the kernel refuses is an error, until it is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from holdfast.agent.claims import BlockedBy, Claim, ClaimKey, LocalRoute
from holdfast.agent.desired.peers import local_routes
from holdfast.agent.desired.slim_endpoint import SlimEndpoint
from holdfast.model.calico.endpoint import EndpointName
from holdfast.model.calico.endpoint_status import EndpointState
from holdfast.reconcile import Outstanding, Owned

FindChange = Callable[[ClaimKey], Outstanding[ClaimKey, Claim] | None]


def states(
    endpoints: Iterable[SlimEndpoint],
    present: Mapping[ClaimKey, Owned[Claim]],
    outstanding: FindChange,
    blocked_by: BlockedBy,
) -> dict[EndpointName, EndpointState]:
    return {one.name: _state(one, present, outstanding, blocked_by) for one in endpoints}


def _state(
    endpoint: SlimEndpoint, present: Mapping[ClaimKey, Owned[Claim]], outstanding: FindChange, blocked_by: BlockedBy
) -> EndpointState:
    routes = dict(local_routes(endpoint))
    if any(blocked_by(key, claim.shape) for key, claim in routes.items()):
        return EndpointState.DOWN
    if any((found := outstanding(key)) is not None and found.error for key in routes):
        return EndpointState.ERROR
    made = all(_is_made(present.get(key), claim) for key, claim in routes.items())
    return EndpointState.UP if made and endpoint.interface else EndpointState.DOWN


def _is_made(found: Owned[Claim] | None, wanted: Claim) -> bool:
    if found is None or found.value.missing:
        return False
    shape = found.value.shape
    return isinstance(shape, LocalRoute) and shape == replace(wanted.shape, metric=shape.metric)
