"""All scenes by the name that `holdfast lab break` takes."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.lab.scenes import agent, balancer, host, inventory, leader, restores, status
from holdfast.lab.scenes.stage import Scene

SCENES: Mapping[str, Scene] = {
    **leader.SCENES,
    **balancer.SCENES,
    **inventory.SCENES,
    **agent.SCENES,
    **host.SCENES,
    **status.SCENES,
    **restores.SCENES,
}
