"""The configuration: one file, the environment and flags, with the origin of every value.

    /etc/holdfast/holdfast.yaml ─► loading.yaml (text with positions) ─► loading.section ─┐
    HOLDFAST_SECTION_FIELD, flags ──────────────────────────────────────► loading.section ┴► loading.resolve ─► Loaded

Pure: texts are passed in, `holdfast.runtime.config_file` reads the files. Precedence is flag, environment, file,
default. `resolve` returns `Loaded`, or `ConfigRejected` with all problems.

To add a section: write a file with a frozen `Section` whose fields carry their documentation (`sections/log.py` is a
short example), and add one line to `Config` in `root.py`. The keys of the file, the environment variables, `config
show` and the reference page follow from that. Checks between fields go into `conflicts`.

Sections that come in any number are a field that is a mapping of names to sections, or a tuple of sections
(`sections/balancer.py`). The file alone can set them.
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
