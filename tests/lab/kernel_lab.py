"""Parts of a lab on the kernel, in a process of their own.

    python -m tests.lab.kernel_lab site|hosts FOLDER

`site` runs the web servers, the balancer and the client; `hosts` etcd, one server with the inventory, and the agents.
"""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.cli.daemons.run import run_role
from holdfast.config import FlagValue
from holdfast.lab.fleet import fleet, kernel_hosts, layout, netns

PARTS = {"site": ("web", "client", "lb-1"), "hosts": ("etcd", "inventory", "ctl-1", "agents")}


def main(part: str, folder: Path) -> None:
    workers = [one for one in fleet.WORKERS if one.name in PARTS[part]]
    flags = (
        FlagValue("--dir", "paths.state", str(folder / "state")),
        FlagValue("--dir", "paths.runtime", str(folder / "run")),
    )
    with netns.created(folder / "state"):
        layout.set_host_count(folder / "state", kernel_hosts.COUNT)
        run_role(fleet.ROLE, workers, None, flags)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
