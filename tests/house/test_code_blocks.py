"""Code in the documents can be used as it is written; links at the root lead somewhere."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.config.loading.section import Notes, read_section
from holdfast.config.loading.yaml import parse
from holdfast.config.root import Config
from holdfast.config.schema.field import fields
from holdfast.inventory.manifest.read import read
from holdfast.model.base.region import Region
from tests.house import repository

DOCUMENTS = [path for path in repository.files() if path.suffix == ".md"]


def blocks(text: str) -> Iterator[str]:
    """Return every block of code, fenced or indented."""
    fence = r"^```\w*\n(.*?)^```$"
    yield from re.findall(fence, text, re.MULTILINE | re.DOTALL)
    rest = re.sub(fence, "", text, flags=re.MULTILINE | re.DOTALL)
    for found in re.finditer(r"(?:^ {4,}\S.*\n|^\n(?= {4,}\S))+", rest, re.MULTILINE):
        yield textwrap.dedent(found[0]).strip("\n")


def test_every_configuration_that_a_page_shows_is_read() -> None:
    sections = tuple(f"{name}:" for name in fields(Config))
    shown = [(path, one) for path in DOCUMENTS for one in blocks(path.read_text("utf-8")) if one.startswith(sections)]
    assert len(shown) >= 6
    assert [(path.name, fault) for path, text in shown for fault in faults(text)] == []


def faults(text: str) -> list[Any]:
    """Return what is wrong with a part of a configuration, as far as the part itself can tell."""
    document = parse(text)
    notes = Notes()
    if document.root is not None:
        read_section(Config, document.root, "", notes)
    return [*document.faults, *notes.faults]


def test_every_manifest_that_a_page_shows_is_read() -> None:
    shown = [
        (path, one) for path in DOCUMENTS for one in blocks(path.read_text("utf-8")) if re.match("(- )?kind: ", one)
    ]
    assert shown
    for path, text in shown:
        assert read(text, path.name, Region("r")), path


def test_every_other_yaml_and_python_of_a_page_is_well_formed() -> None:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        for one in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            list(yaml.safe_load_all(one))
        for one in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            compile(one, path.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the built pages name them."""
    headings = re.findall(r"^#{1,6} (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "document", [path for path in DOCUMENTS if path.parent == repository.ROOT], ids=lambda p: p.stem
)
def test_every_link_of_a_page_at_the_root_leads_somewhere(document: Path) -> None:
    """Those below docs/ are checked where they are built."""
    broken = []
    for link in re.findall(r"\]\(([^)\s:]+)\)", document.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = repository.ROOT / name if name else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []
