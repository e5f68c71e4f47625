"""Finds a protection and its replacement. Needs no pytest: Neutron's environment has none."""

from __future__ import annotations

import importlib
from typing import Any


def apply_removal(without: str, returns: object, by: str | None) -> tuple[Any, str, Any]:
    """Return the object that has the protection, its path, and its replacement."""
    owner, _, name = _find(without)
    if by is None:
        return owner, name, lambda *_args, **_kwargs: returns
    other, _, stand_in = _find(by)
    return owner, name, getattr(other, stand_in)


def _find(place: str) -> tuple[Any, str, str]:
    module, _, path = place.partition(":")
    *outer, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in outer:
        owner = getattr(owner, part)
    getattr(owner, name)  # fail here if the protection does not exist
    return owner, path, name
