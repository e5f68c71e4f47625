"""Security groups to policies."""

from __future__ import annotations

import re

from holdfast.model.base.bad import Bad
from holdfast.model.base.name import NameRefused
from holdfast.model.calico.policy import POLICY, Policy, PolicyRule, PolicySpec
from holdfast.model.calico.resource import Metadata
from holdfast.openstack.rows import NeutronRows, SecurityGroupRow
from holdfast.openstack.translate.labels import GROUP
from holdfast.openstack.translate.outcome import (
    MissingRow,
    Translated,
    Translation,
    refused,
    row_path,
    timestamp,
    uid_of,
)
from holdfast.openstack.translate.rules import policy_rule
from holdfast.openstack.translate.settings import TranslationSettings

POLICY_NAME = "ossg.default."
_PLAIN_ID = re.compile("[A-Za-z0-9_.-]+").fullmatch


def policy_name(group: str) -> str:
    """The name of a group's policy. Raises NameRefused for an id that could not stand in a selector."""
    if not _PLAIN_ID(group):
        raise NameRefused("the id of a security group has letters, digits and `-_.` only")
    return f"{POLICY_NAME}{group}"


def translate_group(group: SecurityGroupRow, rows: NeutronRows, settings: TranslationSettings) -> Translation:
    """The policy of a security group. A rule without a form in Calico is left out: nothing is allowed by mistake.

    A group without rules has a policy too, which selects its members and allows nothing. `stateful: false` has no form
    in Calico: Felix always tracks connections.
    """
    region = settings.region
    try:
        key = POLICY.key(region, policy_name(group.id))
    except NameRefused as error:
        return Translation(bad=(refused(row_path("security-groups", group.id), error),))
    rules, bad = _rules(group, key, rows)
    spec = PolicySpec(rules["ingress"], rules["egress"], f"has({GROUP}{group.id})")
    metadata = Metadata(policy_name(group.id), region.namespace, timestamp(group.created_at), uid_of(key))
    return Translation((Translated(POLICY, key, Policy(metadata=metadata, spec=spec)),), bad)


def _rules(
    group: SecurityGroupRow, key: bytes, rows: NeutronRows
) -> tuple[dict[str, tuple[PolicyRule, ...]], tuple[Bad, ...]]:
    found: dict[str, list[PolicyRule]] = {"ingress": [], "egress": []}
    bad: list[Bad] = []
    for row in sorted(group.rules, key=lambda row: row.id):
        try:
            if row.remote_group_id is not None:
                policy_name(row.remote_group_id)
            rule = policy_rule(row, rows)
        except (ValueError, MissingRow) as error:
            bad.append(refused(key, error, f"rule {row.id}"))
            continue
        if rule is not None:
            found[row.direction].append(rule)
    return {way: tuple(rules) for way, rules in found.items()}, tuple(bad)
