"""Only the web site of a lab on the kernel: servers, balancer and client, without the rest of the fleet.

python -m tests.lab.kernel_site FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.cli.daemons.run import run_role
from holdfast.config import FlagValue
from holdfast.lab.fleet import fleet, netns
from holdfast.lab.fleet.balancer import BALANCER
from holdfast.lab.fleet.client import CLIENT
from holdfast.lab.fleet.web import WEB

WORKERS = [one for one in fleet.WORKERS if one in (WEB, CLIENT) or one.name == BALANCER]


def main(folder: Path) -> None:
    flags = (
        FlagValue("--dir", "paths.state", str(folder / "state")),
        FlagValue("--dir", "paths.runtime", str(folder / "run")),
    )
    with netns.ground(folder / "state"):
        run_role(fleet.ROLE, WORKERS, None, flags)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
