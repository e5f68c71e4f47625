"""Opens the dataplane that is configured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from holdfast.agent import ROLE
from holdfast.agent.dataplane.api import HostDataplane
from holdfast.agent.dataplane.file import FileDataplane
from holdfast.config.sections.agent import AgentSettings
from holdfast.netlink.netns import inside


def open_dataplane(
    config: AgentSettings, macs: Callable[[int], str | None], runtime: Path, *, exclusive: bool = True
) -> HostDataplane:
    """Open it; `exclusive` refuses where another agent has it. `macs` gives the MAC of our VXLAN device by family.
    Raises `Away`."""
    match config.dataplane.kind:
        case "memory":
            return FileDataplane(Path(config.dataplane.file or runtime / f"{ROLE}.kernel.json"))
        case "linux":
            from holdfast.agent.dataplane.linux import LinuxDataplane

            make = partial(LinuxDataplane, config.linux, macs, exclusive=exclusive)
            return make() if config.dataplane.netns is None else inside(config.dataplane.netns, make)
