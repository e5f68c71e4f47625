"""Documentation build: offline, warnings as errors, nothing generated into the source tree."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

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


def beside(module: str, name: str) -> Callable[[], str]:
    """A generator in a module of this folder."""
    sys.path.insert(0, str(Path(__file__).parents[1]))  # sphinx-build does not put the repository on the path
    generator: Callable[[], str] = getattr(importlib.import_module(f"docs.{module}"), name)
    return generator


GENERATED: dict[str, tuple[str, Callable[[], str]]] = {
    "reference/configuration": ("", reference),
    "reference/commands": ("", beside("command_reference", "reference")),
    "reference/api": ("", beside("api_reference", "reference")),
    "concepts": ("<!-- gate table -->", beside("gate_table", "table")),
}
"""Page: the mark that the generated text replaces (the whole page without one), and the generator."""


def generate(_app: Sphinx, page: str, source: list[str]) -> None:
    """Puts generated text into a page, in memory."""
    if page in GENERATED:
        mark, text = GENERATED[page]
        source[0] = source[0].replace(mark, text()) if mark else text()


def setup(app: Sphinx) -> None:
    app.connect("source-read", generate)
    # A generated page depends on more than its file, so it is never up to date.
    app.connect("env-get-outdated", lambda *_: list(GENERATED))
