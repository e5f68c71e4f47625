"""A list of parts (CycloneDX 1.5) for a lock, or the requirements that one lock has and another has not.

    sbom.py LOCK                   prints the list of parts
    sbom.py --only-in LOCK OTHER   prints a lock

Both say what the lock says and ask nobody, so that they are the same wherever they are made.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import holdfast


def requirements(lock: str) -> dict[str, str]:
    """Each requirement of a lock as it is written there, by its name."""
    parts = re.split(r"^(?=\S)", Path(lock).read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.split(r"[=\s\[]", part, maxsplit=1)[0]: part for part in parts if part.strip()}


def component(name: str, requirement: str) -> dict[str, Any]:
    version = re.search(r"==([^\s;\\]+)", requirement)
    assert version is not None, f"{name} has no version"
    hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})", requirement)
    place = f"pkg:pypi/{name}@{version[1]}"
    # One of these files is the one that is installed; which one depends on Python and machine.
    files = [{"type": "distribution", "url": place, "hashes": [{"alg": "SHA-256", "content": one}]} for one in hashes]
    return {
        "type": "library",
        "bom-ref": place,
        "name": name,
        "version": version[1],
        "purl": place,
        "externalReferences": files,
    }


def bill(lock: str) -> dict[str, Any]:
    own = f"pkg:pypi/holdfast@{holdfast.__version__}"
    parts = [component(name, requirement) for name, requirement in sorted(requirements(lock).items())]
    itself = {"type": "application", "bom-ref": own, "name": "holdfast", "version": holdfast.__version__, "purl": own}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": itself},
        "components": parts,
        "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}],
    }


def main(arguments: list[str]) -> None:
    if arguments[0] == "--only-in":
        other = requirements(arguments[2])
        print("".join(text for name, text in requirements(arguments[1]).items() if name not in other), end="")
    else:
        print(json.dumps(bill(arguments[0]), indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
