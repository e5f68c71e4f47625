"""How the documentation is built: offline, warnings as errors, nothing generated into the source tree."""

from __future__ import annotations

import holdfast

project = "Holdfast"
author = "the Holdfast authors"
release = version = holdfast.__version__

extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"Holdfast {release}"
html_copy_source = False
myst_heading_anchors = 3
nitpicky = True
