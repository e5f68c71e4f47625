"""Regions: the part of etcd that belongs to one control plane. Decides a segment of keys and Calico's namespace."""

from __future__ import annotations

import re

import msgspec

from holdfast.config.root import Config
from holdfast.model.base.address import shown

_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?").fullmatch
_NO_REGION = "no-region"
_SEGMENT = "region-"
_NAMESPACE = "openstack"
_NAMESPACE_LIMIT = 63


class Region(msgspec.Struct, frozen=True, order=True, gc=False):
    """`Region()` is a fleet without regions, `Region("ams")` one of several on one etcd.

    In OpenStack the leader is elected at the key of networking-calico, so that there are never two leaders during an
    upgrade from it.
    """

    name: str = ""
    openstack: bool = False

    def __post_init__(self) -> None:
        if self.name and not _LABEL(self.name):
            raise ValueError(f"region {shown(self.name)} may have lower-case letters, digits and inner hyphens only")
        if len(self.namespace) > _NAMESPACE_LIMIT:
            raise ValueError(
                f"region {shown(self.name)} makes a namespace of over {_NAMESPACE_LIMIT} letters; shorten it"
            )

    @classmethod
    def of_segment(cls, segment: str) -> Region:
        """The region of a segment in keys; a plain name is taken, too. Raises ValueError."""
        return cls("" if segment == _NO_REGION else segment.removeprefix(_SEGMENT))

    @property
    def segment(self) -> str:
        """The segment in keys: `no-region` or `region-ams`."""
        return f"{_SEGMENT}{self.name}" if self.name else _NO_REGION

    @property
    def namespace(self) -> str:
        """The namespace of Calico's resources: `openstack` or `openstack-region-ams`."""
        return f"{_NAMESPACE}-{_SEGMENT}{self.name}" if self.name else _NAMESPACE


def configured_region(config: Config) -> Region:
    """The region that a configuration names."""
    return Region(config.store.region or "", config.store.openstack or config.inventory.is_neutron)


def shown_source(name: str) -> str:
    """Return a source as people read it: that of a fleet without regions is the store, whatever its keys are called."""
    return "the store" if name == Region().segment else name
