"""Balancer of the lab: everything that `holdfast balancer` runs, on the lab's file dataplane or on the kernel.

    python -m holdfast.lab.fleet.balancer [--on-kernel] FILE paths.state=LAB_STATE/lb-1 paths.runtime=…

FILE is its configuration. Without `--on-kernel`, its dataplane is a file in the lab's state folder, one level up.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from holdfast.balancer import VIPS_WORKER
from holdfast.balancer.probing.channel import ProberClient
from holdfast.balancer.probing.worker import PROBER, PROBES_SOCKET
from holdfast.balancer.worker import WORKERS as REAL_WORKERS
from holdfast.balancer.worker import BalancerJob
from holdfast.lab.fleet import daemon
from holdfast.lab.fleet.layout import vips_file
from holdfast.lab.fleet.vips_file import VipsFile
from holdfast.runtime.daemon.worker import Spec, Worker

ROLE = "balancer"
BALANCER = "lb-1"
ON_KERNEL = "--on-kernel"
WORKERS = (PROBER, Spec(VIPS_WORKER, "holdfast.lab.fleet.balancer:run"))


async def run(worker: Worker) -> None:
    dataplane = VipsFile(path=vips_file(worker.paths.state.parent))
    await BalancerJob(worker, dataplane, ProberClient(worker.paths.socket(PROBES_SOCKET))).run()


def main(arguments: Sequence[str]) -> int:
    rest = daemon.bind_to_parent(arguments)
    if rest is None:
        return 1
    file, *settings = [one for one in rest if one != ON_KERNEL]
    workers = REAL_WORKERS if ON_KERNEL in rest else WORKERS
    return daemon.run_daemon(ROLE, settings, workers, file=file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
