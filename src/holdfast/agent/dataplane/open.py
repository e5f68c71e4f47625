"""Opens the dataplane that is configured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from holdfast.agent import ROLE
from holdfast.agent.claims import ClaimKey
from holdfast.agent.dataplane.api import HostDataplane
from holdfast.agent.dataplane.file import FileDataplane
from holdfast.agent.dataplane.marks import RememberedMarks, kernel_mark
from holdfast.config.sections.agent import AgentSettings
from holdfast.config.sections.linux import LinuxSettings
from holdfast.netlink.netns import inside
from holdfast.reconcile import Away

if TYPE_CHECKING:
    from holdfast.agent.dataplane.linux import LinuxDataplane

log = structlog.get_logger(__name__)

IsJournaled = Callable[[ClaimKey], bool]
"""Returns whether earlier runs of the agent may have put an object into the kernel."""


def open_dataplane(
    config: AgentSettings,
    underlays: Callable[[int], str | None],
    runtime: Path,
    is_journaled: IsJournaled | None = None,
) -> HostDataplane:
    """Open it for the agent, if `is_journaled` is given, and refuse where another one has it; otherwise for reading.
    `underlays` gives the address of this host to which others send the packets of the tunnel of that family. Raises
    `Away`."""
    match config.dataplane.kind:
        case "memory":
            return FileDataplane(Path(config.dataplane.file or runtime / f"{ROLE}.kernel.json"))
        case "linux":
            from holdfast.agent.dataplane.linux import LinuxDataplane

            make = partial(
                LinuxDataplane,
                config.linux,
                underlays,
                exclusive=is_journaled is not None,
                guard=config.guard,
                is_routed=config.routing == "bgp",
            )
            made = make() if config.dataplane.netns is None else inside(config.dataplane.netns, make)
            if is_journaled is not None and made.ready() is None:
                _take_over_or_close(made, RememberedMarks.beside(runtime), config.linux, is_journaled)
            return made


def _take_over_or_close(
    made: LinuxDataplane, remembered: RememberedMarks, settings: LinuxSettings, is_journaled: IsJournaled
) -> None:
    try:
        take_over_former(made, remembered, settings, is_journaled)
    except Away:
        made.close()
        raise


def take_over_former(
    dataplane: LinuxDataplane, remembered: RememberedMarks, settings: LinuxSettings, is_journaled: IsJournaled
) -> None:
    """Take over what runs with another `table` or `protocol` left. What the kernel refuses is tried again at the next
    start; the agent works meanwhile. Raises `Away`."""
    current, refused = kernel_mark(settings), False
    for former in remembered.begin(current):
        answers = dataplane.take_over(former, is_journaled)
        log.info("took over the objects of earlier settings", table=former.table, protocol=former.protocol)
        for answer in answers[:1]:
            log.error("cannot take over all of them; they stay", refused=len(answers), first=answer)
        refused |= bool(answers)
    if not refused:
        remembered.end(current)
