"""The configuration: one file, and where each of its values came from.

    /etc/holdfast/holdfast.yaml ─► document (text with places) ─► reading (one value) ─┐
    HOLDFAST_SECTION_FIELD, flags ─────────────────────────────► reading ──────────────┴► resolve ─► Loaded | Rejected

Pure: texts are handed in, `holdfast.runtime.config_file` reads the files. Precedence is flag, environment, file,
default.

To add a section: write one file with a frozen `Section` whose fields carry their documentation
(`config/sections/log.py` is a short example), and add one line to `Config` in `config/root.py`. The file's keys, the
environment variables, `config show` and the reference page follow from that. Checks between fields go into `conflicts`.

Things that there can be any number of are a group: a field that is a mapping of names to sections, or a tuple of them
(`config/sections/balancer.py`). They come from the file alone; `loading.group` reads them.
"""

from holdfast.config.loading.origin import ConfigProblem, ConfigRejected, Layer, Origin
from holdfast.config.loading.resolve import ConfigFile, FlagValue, Loaded, resolve
from holdfast.config.root import Config, dump, restore

__all__ = [
    "Config",
    "ConfigFile",
    "ConfigProblem",
    "ConfigRejected",
    "FlagValue",
    "Layer",
    "Loaded",
    "Origin",
    "dump",
    "resolve",
    "restore",
]
