"""Keys of a kind in the store: writing and parsing, each the exact inverse of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast.model.base.name import segment
from holdfast.model.base.region import Region

N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class KeySpace(Generic[N]):
    """The part of the key space that belongs to one kind.

    `root` is the prefix of all its keys; `write` makes the rest of a key from a name, or raises NameRefused; `read`
    parses that rest, raises NameRefused, or returns None when another kind owns the key.
    """

    root: Callable[[Region], str]
    write: Callable[[N], str]
    read: Callable[[str], N | None]


def calico(plural: str) -> Callable[[Region], str]:
    """The root of a Calico resource without a namespace."""
    return lambda region: f"/calico/resources/v3/projectcalico.org/{plural}/"


def namespaced(plural: str) -> Callable[[Region], str]:
    """The root of a Calico resource in the region's namespace."""
    return lambda region: f"/calico/resources/v3/projectcalico.org/{plural}/{region.namespace}/"


def felix(region: Region) -> str:
    """The root of the reports of Felix, or of our agent in its place."""
    return f"/calico/felix/v2/{region.segment}/host/"


def own(path: str) -> Callable[[Region], str]:
    """A root below Holdfast's own keys."""
    return lambda region: f"/holdfast/v1/{region.segment}/{path}"


def named(root: Callable[[Region], str]) -> KeySpace[str]:
    """Objects with a plain name directly under the root."""
    return KeySpace(root, segment, segment)


def single(root: Callable[[Region], str], name: str) -> KeySpace[str]:
    """The one object at exactly this key; `name` is what people call it."""
    return KeySpace(root, lambda _: "", lambda rest: None if rest else name)
