"""What the dataplane is called in the kernel: the configuration's numbers and names, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.agent.claims import ClaimKey, RoutingRule, Shape, rule
from holdfast.config.sections.linux import LinuxSettings

FAMILIES = (4, 6)
OWNED = "holdfast: owned by its agent"
"""The alias of a device of ours."""
_OVERHEAD = {4: 50, 6: 70}


def device_name(settings: LinuxSettings, family: int) -> str:
    return f"{settings.device}{family}"


def mtu(settings: LinuxSettings, family: int) -> int:
    """Of the tunnel device on an underlay of that family."""
    return settings.underlay_mtu - _OVERHEAD[family]


def own(settings: LinuxSettings, families: Iterable[int] = FAMILIES) -> dict[ClaimKey, Shape]:
    """What no peer asks for and what must be there all the same."""
    return {rule(family, settings.table): RoutingRule(settings.priority) for family in families}
