"""Properties of the translator for any rows: no exception, keys and values that readers accept, no rule widened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.model.base.bad import Bad
from holdfast.model.base.region import Region
from holdfast.model.calico.policy import Policy
from holdfast.openstack.rows import FixedIpRow, NeutronRows, PortRow, SecurityGroupRow, SubnetRow
from holdfast.openstack.translate.endpoint import translate_port
from holdfast.openstack.translate.keys import keys_of, resource_at
from holdfast.openstack.translate.outcome import Translation
from holdfast.openstack.translate.policy import translate_group
from holdfast.openstack.translate.settings import TranslationSettings
from holdfast.openstack.translate.subnet import translate_subnet
from tests.openstack.translate.build import PLAIN, ROWS, rule
from tests.openstack.translate.strategies import addresses, groups, neutron, ports, profiles, rules, subnets

relaxed = settings(max_examples=60, deadline=None)
chosen = st.builds(
    TranslationSettings,
    region=st.sampled_from((Region(), Region("ams"))),
    dns_domain=st.none() | st.sampled_from(("", "openstacklocal", "example.org.")),
    source_prefixes=st.booleans(),
    max_ingress_connections_per_port=st.integers(-1, 2**40),
    egress_burst_bits=st.integers(-1, 2**40),
)
nearly_right = st.builds(
    lambda fixed, pairs, profile: replace(
        PLAIN,
        fixed_ips=tuple(FixedIpRow(each, PLAIN.fixed_ips[0].subnet_id) for each in fixed),
        address_pairs=pairs,
        bindings=(replace(PLAIN.bindings[0], profile=profile),),
    ),
    st.lists(addresses, max_size=3),
    ports.map(lambda port: port.address_pairs),
    profiles,
)


def _check(found: Translation, row: Any, region: Region) -> None:
    """Objects are readable at their keys, a row without objects is refused by name, and keys lead back to the row."""
    for each in found.objects:
        stored = each.kind.decode(each.key, each.doc)
        assert stored == each.thing
        assert each.kind.equals(each.key, each.doc, each.thing)
        resource = resource_at(each.key, region)
        assert not isinstance(resource, Bad)
        assert resource.id == row.id
    wanted = {each.key for each in keys_of(row, region)}
    assert {each.key for each in found.objects} == wanted or (found.bad and not found.objects)
    for bad in found.bad:
        assert bad.detail
        assert bad.detail.isprintable()


@relaxed
@given(port=ports | nearly_right, rows=neutron | st.just(ROWS), options=chosen)
def test_any_port_is_translated_or_refused(port: PortRow, rows: NeutronRows, options: TranslationSettings) -> None:
    _check(translate_port(port, rows, options), port, options.region)


@relaxed
@given(group=groups, rows=neutron | st.just(ROWS), options=chosen)
def test_any_group_is_translated_or_refused(
    group: SecurityGroupRow, rows: NeutronRows, options: TranslationSettings
) -> None:
    found = translate_group(group, rows, options)
    _check(found, group, options.region)
    for each in found.objects:
        assert isinstance(each.thing, Policy)
        assert len(each.thing.spec.ingress) + len(each.thing.spec.egress) <= len(group.rules)


@relaxed
@given(subnet=subnets, options=chosen)
def test_any_subnet_is_translated_or_refused(subnet: SubnetRow, options: TranslationSettings) -> None:
    _check(translate_subnet(subnet, options), subnet, options.region)


@relaxed
@given(row=rules, rows=neutron)
def test_a_rule_with_a_remote_never_allows_everybody(row: Any, rows: NeutronRows) -> None:
    """A rule is left out rather than widened; networking-calico widens address groups."""
    limited = replace(row, remote_address_group_id="b") if row.remote_ip_prefix is None else row
    for each in translate_group(SecurityGroupRow(id="g", rules=(limited,)), rows, TranslationSettings()).objects:
        for found in (*each.thing.spec.ingress, *each.thing.spec.egress):
            party = found.source if limited.direction == "ingress" else found.destination
            assert party is not None
            assert party.nets


@relaxed
@given(translator=st.sampled_from((0, 1)), data=st.data())
def test_the_order_of_rows_has_no_meaning(translator: int, data: st.DataObject) -> None:
    many = data.draw(st.permutations([rule(id=str(n), protocol=str(n)) for n in range(5)]))
    pairs = data.draw(st.permutations(PLAIN.fixed_ips))
    make: tuple[Callable[[], Translation], ...] = (
        lambda: translate_group(SecurityGroupRow(id="g", rules=tuple(many)), ROWS, TranslationSettings()),
        lambda: translate_port(replace(PLAIN, fixed_ips=tuple(pairs)), ROWS, TranslationSettings()),
    )
    plain = (
        translate_group(
            SecurityGroupRow(id="g", rules=tuple(sorted(many, key=lambda r: r.id))), ROWS, TranslationSettings()
        ),
        translate_port(PLAIN, ROWS, TranslationSettings()),
    )
    assert [each.doc for each in make[translator]().objects] == [each.doc for each in plain[translator].objects]
