"""Common parts of Calico's v3 resources: envelope, metadata, and the identity that survives a rewrite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace

S = TypeVar("S")
R = TypeVar("R", bound="Resource[Any]")


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """Metadata of a resource. `uid` and `creation_timestamp` are opaque and kept exactly as they were found."""

    name: str
    namespace: str = ""
    creation_timestamp: str | None = None
    uid: str = ""
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


class Resource(msgspec.Struct, Generic[S], frozen=True, gc=False, rename="camel", tag_field="kind", kw_only=True):
    """The envelope. The struct's tag is the `kind` on the wire: a value of another kind is refused."""

    api_version: Literal["projectcalico.org/v3"] = "projectcalico.org/v3"
    metadata: Metadata
    spec: S


def carry_identity(new: R, old: R) -> R:
    """Give the new resource the uid and creation time of the old one."""
    uid, created = old.metadata.uid, old.metadata.creation_timestamp
    if not uid and created is None:
        return new
    kept = replace(
        new.metadata,
        uid=uid or new.metadata.uid,
        creation_timestamp=new.metadata.creation_timestamp if created is None else created,
    )
    return replace(new, metadata=kept)


def carry_metadata(new: R, old: R) -> R:
    """Give the new resource the identity of the old one and, unless it sets its own, the labels and annotations that
    others put there."""
    carried = carry_identity(new, old)
    kept = replace(
        carried.metadata,
        labels=new.metadata.labels or old.metadata.labels,
        annotations=new.metadata.annotations or old.metadata.annotations,
    )
    return replace(carried, metadata=kept)


def full_name(resource: Resource[Any]) -> str:
    """The end of its key: namespace and name."""
    metadata = resource.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
