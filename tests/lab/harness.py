"""Plays a scene on a lab."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main

needs_etcd = pytest.mark.skipif(
    shutil.which("etcd") is None and not Path("/usr/sbin/etcd").exists(), reason="etcd is not installed"
)


def broken(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["lab", "break", "--dir", str(folder), *arguments])
