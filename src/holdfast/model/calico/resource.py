"""What all of Calico's v3 resources have in common: the envelope, the metadata, and what survives a rewrite of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec
from msgspec.structs import replace

S = TypeVar("S")
R = TypeVar("R", bound="Resource[Any]")


class Metadata(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, rename="camel"):
    """Who a resource is. `uid` and `creation_timestamp` are opaque: they are handed on exactly as they were found."""

    name: str
    namespace: str = ""
    creation_timestamp: str | None = None
    uid: str = ""
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


class Resource(msgspec.Struct, Generic[S], frozen=True, gc=False, rename="camel", tag_field="kind", kw_only=True):
    """The envelope. The wire's `kind` is the struct's tag: a value that names another kind is refused."""

    api_version: Literal["projectcalico.org/v3"] = "projectcalico.org/v3"
    metadata: Metadata
    spec: S


def carry_identity(new: R, old: R) -> R:
    """The new resource as the same individual as the old one: its uid and creation time stay."""
    uid, created = old.metadata.uid, old.metadata.creation_timestamp
    if not uid and created is None:
        return new
    kept = replace(
        new.metadata,
        uid=uid or new.metadata.uid,
        creation_timestamp=new.metadata.creation_timestamp if created is None else created,
    )
    return replace(new, metadata=kept)


def full_name(resource: Resource[Any]) -> str:
    """How the end of its key must read."""
    metadata = resource.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
