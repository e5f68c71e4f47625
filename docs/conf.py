"""How the documentation is built: offline, warnings as errors, nothing generated into the source tree."""

from __future__ import annotations

from sphinx.application import Sphinx

import holdfast
from holdfast.config.output.reference import reference

project = "Holdfast"
author = "the Holdfast authors"
release = version = holdfast.__version__

extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"Holdfast {release}"
html_copy_source = False
myst_heading_anchors = 3
nitpicky = True

GENERATED = {"reference/configuration": reference}


def generate(_app: Sphinx, page: str, source: list[str]) -> None:
    """Puts the generated text in the place of the file's, in memory."""
    if page in GENERATED:
        source[0] = GENERATED[page]()


def setup(app: Sphinx) -> None:
    app.connect("source-read", generate)
    # What a generated page is made of is not its file, so it is never up to date.
    app.connect("env-get-outdated", lambda *_: list(GENERATED))
