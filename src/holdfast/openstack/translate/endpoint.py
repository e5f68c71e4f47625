"""Ports to endpoints and live migrations.

Port security has no field of its own in Calico: a port without it has no security groups, so no policy selects its
endpoint, and Felix drops its traffic. networking-calico behaves the same; so does the administrative state, which Felix
never sees.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.model.base.address import address, prefix
from holdfast.model.base.bad import Bad
from holdfast.model.calico.endpoint import ENDPOINT, AddressPair, Endpoint, EndpointName, EndpointSpec
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.openstack.rows import FixedIpRow, NeutronRows, PortRow
from holdfast.openstack.translate.labels import annotations_of, labels_of
from holdfast.openstack.translate.outcome import (
    MissingRow,
    Translated,
    Translation,
    refused,
    row_path,
    timestamp,
    uid_of,
)
from holdfast.openstack.translate.places import places
from holdfast.openstack.translate.qos import controls_of
from holdfast.openstack.translate.settings import TranslationSettings

_HOST_LENGTHS = ("/32", "/128")


def translate_port(port: PortRow, rows: NeutronRows, settings: TranslationSettings) -> Translation:
    """The endpoint of a port at its host and, during a live migration, the migration and the endpoint at its target."""
    source, target = places(port)
    if source is None:
        return Translation()
    key = row_path("ports", port.id)
    try:
        key = ENDPOINT.key(settings.region, source)
        endpoint, bad = _endpoint(port, source, key, rows, settings)
        objects = [Translated(ENDPOINT, key, endpoint)]
        if target is not None:
            objects += _migration(port, endpoint, target, settings)
    except (ValueError, MissingRow) as error:
        return Translation(bad=(refused(key, error, f"port {port.id}"),))
    return Translation(tuple(objects), bad)


def _endpoint(
    port: PortRow, name: EndpointName, key: bytes, rows: NeutronRows, settings: TranslationSettings
) -> tuple[Endpoint, tuple[Bad, ...]]:
    region = settings.region
    addresses = tuple(sorted(port.fixed_ips, key=lambda ip: (ip.ip_address, ip.subnet_id)))
    pairs, wide, bad = _address_pairs(port, key, settings)
    nats, unmapped = _floating(port, key)
    ipv4, ipv6 = _gateways(addresses, rows)
    spec = EndpointSpec(
        orchestrator="openstack",
        workload=port.device_id,
        node=name.node,
        endpoint=port.id,
        interface_name=f"tap{port.id[:11]}",
        mac=port.mac_address,
        ipv4_gateway=ipv4,
        ipv6_gateway=ipv6,
        # Felix routes what is in `ipNetworks`; `allowedIps` tells the DHCP agent which of them it must not lease.
        ip_networks=tuple(dict.fromkeys([*(prefix(address(ip.ip_address)) for ip in addresses), *pairs])),
        allowed_ips=pairs,
        ip_nats=nats,
        qos_controls=controls_of(port, rows, settings),
        allow_spoofed_source_prefixes=wide,
    )
    endpoint = Endpoint.of(
        region,
        spec,
        labels=labels_of(port, rows, region.namespace),
        annotations=annotations_of(port, addresses, settings),
        uid=uid_of(key),
        created=timestamp(port.created_at),
    )
    return endpoint, bad + unmapped


def _gateways(addresses: tuple[FixedIpRow, ...], rows: NeutronRows) -> tuple[str, str]:
    """The gateway per family; the last address decides, as in networking-calico. Raises MissingRow."""
    ipv4 = ipv6 = ""
    for ip in addresses:
        subnet = rows.subnets.get(ip.subnet_id)
        if subnet is None:
            raise MissingRow(f"subnet {ip.subnet_id} of {ip.ip_address} was not read")
        if subnet.gateway_ip and ":" in ip.ip_address:
            ipv6 = subnet.gateway_ip
        elif subnet.gateway_ip:
            ipv4 = subnet.gateway_ip
    return ipv4, ipv6


def _address_pairs(
    port: PortRow, key: bytes, settings: TranslationSettings
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[Bad, ...]]:
    """Allowed addresses, allowed prefixes, and pairs that are left out.

    networking-calico appends a length even to a prefix, `10.0.0.0/24/32`, and Felix then drops the whole endpoint. A
    prefix must not become a route either (0.0.0.0/0 is a common pair): it is permission to send, nothing more.
    """
    hosts: list[str] = []
    wide: list[str] = []
    bad: list[Bad] = []
    for pair in port.address_pairs:
        try:
            allowed = prefix(pair.ip_address, strict=False)
        except ValueError as error:
            bad.append(refused(key, error, f"port {port.id}, address pair"))
            continue
        if allowed.endswith(_HOST_LENGTHS[":" in allowed]):
            hosts.append(allowed)
        elif settings.source_prefixes:
            wide.append(allowed)
        else:
            bad.append(refused(key, f"address pair {allowed} of port {port.id} needs source_prefixes"))
    return tuple(dict.fromkeys(hosts)), tuple(dict.fromkeys(wide)), tuple(bad)


def _floating(port: PortRow, key: bytes) -> tuple[tuple[AddressPair, ...], tuple[Bad, ...]]:
    pairs: list[AddressPair] = []
    bad: list[Bad] = []
    for floating in port.floating_ips:
        if floating.fixed_ip_address is None:
            bad.append(refused(key, f"floating IP {floating.id} has no fixed address"))
            continue
        try:
            pairs.append(AddressPair(floating.fixed_ip_address, floating.floating_ip_address))
        except ValueError as error:
            bad.append(refused(key, error, f"floating IP {floating.id}"))
    pairs.sort(key=lambda pair: (pair.internal, pair.external))
    return tuple(pairs), tuple(bad)


def _migration(
    port: PortRow, source: Endpoint, target: EndpointName, settings: TranslationSettings
) -> list[Translated]:
    """The migration and the endpoint at its target.

    The migration gets no uid: Neutron has no id for it, and one made from the key would be the same for the next
    migration between the same hosts, which must be notified again.
    """
    region = settings.region
    key = ENDPOINT.key(region, target)
    spec = replace(source.spec, node=target.node)
    labels, annotations = source.metadata.labels, source.metadata.annotations
    created = source.metadata.creation_timestamp
    endpoint = Endpoint.of(region, spec, labels=labels, annotations=annotations, uid=uid_of(key), created=created)
    migration = Migration.of(region, source.name, target.node)
    return [Translated(MIGRATION, MIGRATION.key(region, target), migration), Translated(ENDPOINT, key, endpoint)]
