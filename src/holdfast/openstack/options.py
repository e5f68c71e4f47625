"""Options of neutron.conf: section `[calico]`, with the names that networking-calico gave them, and `[holdfast]`."""

from __future__ import annotations

from oslo_config import cfg

SECTION = "calico"

OPTIONS = [
    cfg.StrOpt("etcd_host", default="localhost", help="Host of etcd; for several members use endpoints."),
    cfg.PortOpt("etcd_port", default=2379, help="Port of etcd."),
    cfg.StrOpt("etcd_key_file", help="Private key of the client certificate for etcd."),
    cfg.StrOpt("etcd_cert_file", help="Client certificate for etcd."),
    cfg.StrOpt("etcd_ca_cert_file", help="CA certificates for etcd's certificate."),
    cfg.StrOpt("openstack_region", help="Region; every OpenStack region on one etcd needs its own."),
    cfg.ListOpt("endpoints", default=[], help="URLs of all members of etcd; instead of etcd_host and etcd_port."),
    cfg.StrOpt("holdfast_config", help="Configuration file of holdfast server; it wins over the options above."),
]
