"""Where a kind lives in the store: how its keys are written and read. Every read undoes the write, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast.model.base.name import segment
from holdfast.model.base.region import Region

N = TypeVar("N")


@dataclass(frozen=True, slots=True)
class KeySpace(Generic[N]):
    """One kind's part of the key space.

    `root` is the text that all its keys begin with; `write` makes the rest of the key from a name, or raises
    NameRefused; `read` takes that rest apart again, raises NameRefused, or says None when another kind owns the key.
    """

    root: Callable[[Region], str]
    write: Callable[[N], str]
    read: Callable[[str], N | None]


def calico(plural: str) -> Callable[[Region], str]:
    """The root of a Calico resource that belongs to no namespace."""
    return lambda region: f"/calico/resources/v3/projectcalico.org/{plural}/"


def namespaced(plural: str) -> Callable[[Region], str]:
    """The root of a Calico resource in the region's namespace."""
    return lambda region: f"/calico/resources/v3/projectcalico.org/{plural}/{region.namespace}/"


def felix(region: Region) -> str:
    """The root of everything that Felix, or our agent in its stead, reports."""
    return f"/calico/felix/v2/{region.segment}/host/"


def own(path: str) -> Callable[[Region], str]:
    """A root among Holdfast's own keys."""
    return lambda region: f"/holdfast/v1/{region.segment}/{path}"


def named(root: Callable[[Region], str]) -> KeySpace[str]:
    """Objects with a plain name directly under the root."""
    return KeySpace(root, segment, segment)


def single(root: Callable[[Region], str], name: str) -> KeySpace[str]:
    """The one object at exactly this key; people call it by `name`."""
    return KeySpace(root, lambda _: "", lambda rest: None if rest else name)
