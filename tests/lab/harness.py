"""Plays a scene on a lab, and types the commands of the pages beside one."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli import main
from holdfast.lab.scenes.stage import Lab
from tests.house import repository

needs_etcd = pytest.mark.skipif(
    shutil.which("etcd") is None and not Path("/usr/sbin/etcd").exists(), reason="etcd is not installed"
)


def broken(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["lab", "break", "--dir", str(folder), *arguments])


def release_brakes(folder: Path) -> None:
    """Release what the brakes hold: deletes of scenes within the last minute count as well."""

    async def released(lab: Lab) -> None:
        await lab.release_brake()
        await lab.release_agents()

    asyncio.run(released(Lab(folder)))


_FIRST = r"(?:sudo )?(?:make|(?:\.venv/bin/)?holdfast|apt-get)"
_IN_BLOCKS = re.compile(rf"^    (?:\$ )?((?:{_FIRST}|(?:sudo )?ip)(?: .*)?)$", re.MULTILINE)
_IN_SENTENCES = re.compile(rf"`({_FIRST}(?: [^`]*)?)`")


def commands(page: str) -> list[str]:
    """Return every command of a page once, as it is written there, without the comment behind it."""
    text = repository.text(page)
    found = [*_IN_BLOCKS.findall(text), *_IN_SENTENCES.findall(text)]
    return list(dict.fromkeys(re.sub(r" +# .*", "", one) for one in found))


def written(page: str, words: str) -> str:
    """Return the only command of a page that has these words."""
    (found,) = [one for one in commands(page) if words in one]
    return found


def typed(lab: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell beside the lab's `.holdfast`, where `.venv` is, as in a clone with a lab."""
    home = lab.parent
    if not (home / ".venv").exists():
        (home / ".venv").symlink_to(sys.prefix)
    environment = {**os.environ, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=home,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
