"""Only the hosts of a lab on the kernel: etcd, one server with the inventory, and the agents.

python -m tests.lab.kernel_hosts FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.cli.daemons.run import run_role
from holdfast.config import FlagValue
from holdfast.lab.fleet import fleet, inventory, netns
from holdfast.lab.fleet import kernel_hosts as hosts

WORKERS = [one for one in fleet.WORKERS if one.name in ("etcd", "inventory", "ctl-1", "agents")]


def main(folder: Path) -> None:
    flags = (
        FlagValue("--dir", "paths.state", str(folder / "state")),
        FlagValue("--dir", "paths.runtime", str(folder / "run")),
    )
    with netns.ground(folder / "state"):
        inventory.begin(folder / "state", hosts.COUNT)
        run_role(fleet.ROLE, WORKERS, None, flags)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
