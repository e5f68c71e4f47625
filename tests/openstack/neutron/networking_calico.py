"""A real networking-calico that fills etcd with its own resync, for whoever has one: it is in no package index.

    git clone https://github.com/projectcalico/calico /tmp/calico
    pip install --no-deps --target /tmp/etcd3gw etcd3gw
    TEST_NETWORKING_CALICO=/tmp/calico/networking-calico:/tmp/etcd3gw make test-openstack ARGS='-k C41'

Its driver does not run on Neutron 29, but its command `calico-resync` does: it reads Neutron's database through
Neutron's plugin and writes what its hooks would have written.
"""

from __future__ import annotations

import os
import sys

from holdfast.testing.real.neutron import NeutronFleet

PATH = "TEST_NETWORKING_CALICO"
"""Environment variable with the folders of networking-calico and of etcd3gw."""
_PROGRAM = (
    "import sys; sys.path[:0] = sys.argv.pop(1).split(':'); "
    "from networking_calico.resync.cli import main; sys.exit(main(sys.argv[1:]))"
)
_CONFIG = """
[ml2]
mechanism_drivers =
[calico]
etcd_host = {host}
etcd_port = {port}
"""


def fill(fleet: NeutronFleet) -> None:
    """Have it write everything for the objects of this Neutron."""
    host, _, port = fleet.store_endpoint.removeprefix("http://").partition(":")
    more = fleet.home / "networking-calico.conf"
    more.write_text(_CONFIG.format(host=host, port=port))
    files = [f"--config-file={fleet.home / 'neutron.conf'}", f"--config-file={more}"]
    printed = fleet.python(_PROGRAM, os.environ[PATH], *files)
    sys.stdout.write(printed)
    assert '"ok": true' in printed
