"""Reads neutron.conf and ml2_conf.ini as text, without Neutron: for the translator's settings and for commands."""

from __future__ import annotations

import configparser
from collections.abc import Mapping, Sequence

from holdfast.openstack.server_command import CalicoOptions, calico_options


def options_of(files: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
    """All options of these files, by section; later files win."""
    parser = configparser.ConfigParser(interpolation=None, strict=False, default_section="", allow_no_value=True)
    parser.read(files)
    return {name: {key: value or "" for key, value in parser[name].items()} for name in parser.sections()}


def calico_section(files: Sequence[str]) -> CalicoOptions:
    """Section `[calico]` of these files, as the driver reads it."""
    return calico_options(options_of(files).get("calico", {}).get)
