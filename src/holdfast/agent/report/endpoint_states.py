"""What an agent says of the endpoints of its own host: up, down or error. Pure.

Up means that packets for all of its addresses reach its interface. An interface that does not exist, or a route that is
still to be made, is down; a route that the kernel refuses is an error, until it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast.agent.claims import Claim, Key, Shape
from holdfast.agent.desired.peers import local_routes
from holdfast.model.calico.endpoint import Endpoint, EndpointName
from holdfast.model.calico.endpoint_status import State
from holdfast.reconcile import Owned, Story

Obstacle = Callable[[Key, Shape], str | None]
Stories = Callable[[Key], Story[Key, Claim] | None]


def states(
    endpoints: Iterable[Endpoint], present: Mapping[Key, Owned[Claim]], stories: Stories, obstacle: Obstacle
) -> dict[EndpointName, State]:
    """The state of each of this host's endpoints."""
    return {one.name: _state(one, present, stories, obstacle) for one in endpoints}


def _state(endpoint: Endpoint, present: Mapping[Key, Owned[Claim]], stories: Stories, obstacle: Obstacle) -> State:
    routes = dict(local_routes(endpoint))
    if any(obstacle(key, claim.shape) for key, claim in routes.items()):
        return State.DOWN
    if any((story := stories(key)) is not None and story.error for key in routes):
        return State.ERROR
    made = all(_is_made(present.get(key), claim) for key, claim in routes.items())
    return State.UP if made and endpoint.spec.interface_name else State.DOWN


def _is_made(found: Owned[Claim] | None, wanted: Claim) -> bool:
    return found is not None and not found.value.missing and found.value.shape == wanted.shape
