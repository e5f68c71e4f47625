"""Labels and annotations of an endpoint: security groups, project and network, as Calico's selectors see them."""

from __future__ import annotations

import re
from functools import lru_cache

from holdfast.model.calico.endpoint import NETWORK_ANNOTATION, PROJECT_ID, PROJECT_NAME, PROJECT_PARENT
from holdfast.openstack.rows import FixedIpRow, NeutronRows, PortDnsRow, PortRow
from holdfast.openstack.translate.outcome import MissingRow
from holdfast.openstack.translate.settings import TranslationSettings

GROUP = "sg.projectcalico.org/openstack-"
GROUP_NAME = "sg-name.projectcalico.org/openstack-"
_CALICO = "projectcalico.org/"
_NETWORK_NAME = "projectcalico.org/openstack-network-name"
_ANNOTATION = "openstack.projectcalico.org/"
_LIMIT = 63
"""Characters of a label's name or value."""
_DEFAULT_DOMAIN = "openstacklocal."
"""Neutron's own default: with it, names that users gave to their ports are not used."""

_strange = re.compile("[^-_.A-Za-z0-9]").sub


@lru_cache(maxsize=16_384)
def label_text(name: str, most: int = _LIMIT) -> str:
    """A name as the text of a label: cut, strange characters replaced, a letter or digit at both ends."""
    return _strange("_", name[:most]).strip("-_.")


def labels_of(port: PortRow, rows: NeutronRows, namespace: str) -> dict[str, str]:
    """All labels of a port's endpoint. Raises MissingRow.

    Two groups of one port with the same name share a label; as in networking-calico, the one with the higher id has it.
    """
    labels = {f"{_CALICO}namespace": namespace, f"{_CALICO}orchestrator": "openstack"}
    for group in sorted(port.security_groups):
        name = _group_name(group, rows)
        labels[GROUP + group] = name
        if name:
            labels[GROUP_NAME + name] = group
    if port.project_id is not None:
        labels[PROJECT_ID] = port.project_id
        _add_project(labels, port.project_id, rows)
    network = rows.networks.get(port.network_id)
    if network is None:
        raise MissingRow(f"network {port.network_id} was not read")
    if network.name is not None:
        labels[_NETWORK_NAME] = label_text(network.name)
    return labels


def _group_name(group: str, rows: NeutronRows) -> str:
    row = rows.groups.get(group)
    if row is None:
        raise MissingRow(f"security group {group} was not read")
    return label_text(row.name or "", _LIMIT - len(GROUP_NAME))


def _add_project(labels: dict[str, str], project_id: str, rows: NeutronRows) -> None:
    """Add the project's name and parent. Without Keystone both are unknown and left out: a rewrite keeps those
    that the store has."""
    project = rows.projects.get(project_id)
    if project is None:
        return
    labels[PROJECT_NAME] = label_text(project.name)
    if project.parent_id is not None:
        labels[PROJECT_PARENT] = project.parent_id


def annotations_of(port: PortRow, addresses: tuple[FixedIpRow, ...], settings: TranslationSettings) -> dict[str, str]:
    """The network's id and, where Neutron assigns DNS names, the name of the first address."""
    found = {NETWORK_ANNOTATION: port.network_id}
    if addresses and settings.dns_domain is not None:
        found[f"{_ANNOTATION}fqdn"] = _fqdn(port.dns, addresses[0].ip_address, settings.dns_domain)
    return found


def _fqdn(dns: PortDnsRow | None, address: str, configured: str) -> str:
    """The name that Neutron assigns to an address: computed at every read there, and in no table."""
    domain = configured if not configured or configured.endswith(".") else f"{configured}."
    name = ""
    if domain and domain != _DEFAULT_DOMAIN and dns is not None:
        name, domain = dns.dns_name, dns.current_dns_domain or domain
    if name.endswith("."):
        return name
    if name:
        return f"{name}.{domain}"
    host = f"host-{address.replace('.', '-').replace(':', '-')}"
    return f"{host}.{domain}" if domain else host
