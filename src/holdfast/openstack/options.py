"""Options of neutron.conf: section `[calico]`, with the names that networking-calico gave them.

`oslo-config-generator --namespace holdfast` prints them with their defaults. The server reads those of the translation
from Neutron's files itself; here they are registered so that Neutron refuses what is no number when it starts.
"""

from __future__ import annotations

from oslo_config import cfg

from holdfast.openstack.translate.settings import BURST_BITS, BURST_PACKETS

SECTION = "calico"

_STORE = [
    cfg.StrOpt("etcd_host", default="localhost", help="Host of etcd; for several members use endpoints."),
    cfg.PortOpt("etcd_port", default=2379, help="Port of etcd."),
    cfg.StrOpt("etcd_key_file", help="Private key of the client certificate for etcd."),
    cfg.StrOpt("etcd_cert_file", help="Client certificate for etcd."),
    cfg.StrOpt("etcd_ca_cert_file", help="CA certificates for etcd's certificate."),
    cfg.StrOpt("etcd_username", help="User in etcd; needs etcd_password_file, because etcd_password is not read."),
    cfg.StrOpt("etcd_password_file", help="File with nothing but the password of etcd_username."),
    cfg.StrOpt("openstack_region", help="Region; every OpenStack region on one etcd needs its own."),
    cfg.ListOpt("endpoints", default=[], help="URLs of all members of etcd; instead of etcd_host and etcd_port."),
    cfg.StrOpt("holdfast_config", help="Configuration file of holdfast server; it wins over the options above."),
]


def _both_ways(name: str, default: int, what: str) -> list[cfg.IntOpt]:
    return [cfg.IntOpt(name.format(way), default=default, help=what.format(way)) for way in ("ingress", "egress")]


_TRANSLATION = [
    *_both_ways("max_{}_connections_per_port", 0, "Most {} connections of a port; 0 is no limit."),
    *_both_ways("{}_burst_bits", BURST_BITS, "Burst of a port with an {} bandwidth limit, in bits."),
    *_both_ways("{}_minburst_bytes", 0, "Least burst at the peak rate of a port, {}, in bytes; 0 is none."),
    *_both_ways("{}_burst_packets", BURST_PACKETS, "Burst of a port with an {} packet rate limit, in packets."),
    cfg.BoolOpt(
        "source_prefixes",
        default=False,
        help="Let workloads send from allowed address pairs that are prefixes. Every Felix needs "
        "workloadSourceSpoofing: Any; one without it drops the whole endpoint.",
    ),
]

OPTIONS = [*_STORE, *_TRANSLATION]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """The options by section, for oslo-config-generator."""
    return [(SECTION, OPTIONS)]
