"""What the dataplane is called in the kernel: the configuration's numbers and names, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.agent.claims import Key, Rule, Shape, rule
from holdfast.config.sections.linux import Linux

FAMILIES = (4, 6)
OWNED = "holdfast: owned by its agent"
"""The alias of a device of ours."""
_OVERHEAD = {4: 50, 6: 70}


def device_name(settings: Linux, family: int) -> str:
    return f"{settings.device}{family}"


def mtu(settings: Linux, family: int) -> int:
    """Of the tunnel device on an underlay of that family."""
    return settings.underlay_mtu - _OVERHEAD[family]


def own(settings: Linux, families: Iterable[int] = FAMILIES) -> dict[Key, Shape]:
    """What no peer asks for and what must be there all the same."""
    return {rule(family, settings.table): Rule(settings.priority) for family in families}
