"""Holdfast's own configuration inside Neutron's processes: as the worker's command line gives it to the server."""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.config import ConfigRejected, FlagValue, Loaded
from holdfast.openstack.server_command import CalicoOptions, server_settings
from holdfast.runtime.config_file import load


def own_config(options: CalicoOptions, files: Sequence[str]) -> Loaded | ConfigRejected:
    """The configuration that section `[calico]` leads to."""
    flags = [FlagValue("neutron.conf", name, text) for name, text in server_settings(options, files).items()]
    return load(options.config or None, os.environ, flags)
