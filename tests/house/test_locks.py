"""The locks: everything pinned, every file known by its hash, and no word on where it comes from."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.house import repository

LOCKS = ["requirements.lock", "requirements-base.lock", "requirements-dev.lock"]
SQL_AND_WEB = {"sqlalchemy", "alembic", "psycopg", "psycopg-binary", "litestar", "uvicorn"}


def pins(lock: str) -> dict[str, Version]:
    requirements = [Requirement(line) for line in repository.locked(lock)]
    return {requirement.name: Version(next(iter(requirement.specifier)).version) for requirement in requirements}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_one_version_with_hashes(lock: str) -> None:
    requirements = repository.locked(lock)
    assert requirements
    for line, options in requirements.items():
        assert [specifier.operator for specifier in Requirement(line).specifier] == ["=="], line
        assert any(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", option) for option in options), line


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_names_a_package_index(lock: str) -> None:
    text = repository.text(lock)
    assert "://" not in text
    assert "#" not in text
    assert set(re.findall(r"--[a-z-]+", text)) == {"--hash"}


def test_the_development_lock_extends_the_shipped_one() -> None:
    shipped, developing = pins("requirements.lock"), pins("requirements-dev.lock")
    assert shipped.items() <= developing.items()
    assert pins("requirements-base.lock").items() <= developing.items()


def test_agents_and_balancers_need_no_sql_and_no_web_framework() -> None:
    assert set(pins("requirements.lock")) >= SQL_AND_WEB
    assert SQL_AND_WEB.isdisjoint(pins("requirements-base.lock"))


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("requirements-base.lock", ["vpp"]),
        ("requirements.lock", ["server", "api"]),
        ("requirements-dev.lock", ["server", "api", "dev"]),
    ],
)
def test_the_lock_holds_everything_that_pyproject_asks_for(lock: str, extras: list[str]) -> None:
    project = repository.pyproject()["project"]
    asked = [*project["dependencies"], *(line for extra in extras for line in project["optional-dependencies"][extra])]
    pinned = {name.lower().replace("_", "-"): version for name, version in pins(lock).items()}
    for requirement in map(Requirement, asked):
        version = pinned.get(requirement.name.lower().replace("_", "-"))
        assert version is not None, f"{requirement.name} is not in {lock}: run make lock"
        assert version in requirement.specifier, f"{lock} has {requirement.name} {version}: run make lock"


def test_no_file_names_the_package_index_of_this_machine() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    values = re.findall(r"(?:index-url|find-links)='([^']*)'", told)
    sources = {source for value in values for source in re.split(r"\s+|\\n", value) if source}
    public = {source for source in sources if "//pypi.org" in source}
    for path in repository.files():
        content = path.read_bytes()
        named = [source for source in sources - public if source.removeprefix("file://").encode() in content]
        assert not named, f"{path} names {named}"
