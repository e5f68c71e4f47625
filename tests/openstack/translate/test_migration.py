"""Live migrations: the endpoint stays at its source, is written at its target, and the migration names both."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.model.base.bad import BadReason
from holdfast.model.base.region import Region
from holdfast.model.calico.endpoint import ENDPOINT
from holdfast.model.calico.migration import MIGRATION
from holdfast.openstack.rows import BindingRow
from holdfast.openstack.translate.endpoint import translate_port
from holdfast.openstack.translate.settings import TranslationSettings
from tests.openstack.translate.build import DEVICE, PORT, ROWS, SETTINGS, bound, port

TO_2 = '{"migrating_to": "compute-2"}'


def test_a_migrating_port_has_two_endpoints_and_a_migration() -> None:
    (source, migration, target), bad = translate_port(port(bindings=(bound(profile=TO_2),)), ROWS, SETTINGS)
    assert bad == ()
    assert [each.kind for each in (source, migration, target)] == [ENDPOINT, MIGRATION, ENDPOINT]
    assert source == translate_port(port(), ROWS, SETTINGS).objects[0]
    assert target.key == source.key.replace(b"/compute--1-", b"/compute--2-")
    assert migration.key == target.key.replace(b"/workloadendpoints/", b"/livemigrations/")
    moved = translate_port(port(bindings=(bound("compute-2"),)), ROWS, SETTINGS).objects[0]
    assert target == moved


@pytest.mark.parametrize(("region", "namespace"), [("", "openstack"), ("ams", "openstack-region-ams")])
def test_the_migration_is_the_one_that_networking_calico_writes(region: str, namespace: str) -> None:
    settings = TranslationSettings(region=Region(region))
    (_, migration, target), _ = translate_port(port(bindings=(bound(profile=TO_2),)), ROWS, settings)
    side = {"orchestratorID": "openstack", "workloadID": f"{namespace}/{DEVICE}", "endpointID": PORT}
    golden = {
        "kind": "LiveMigration",
        "apiVersion": "projectcalico.org/v3",
        "metadata": {
            "name": target.thing.metadata.name,
            "namespace": namespace,
            "uid": "theirs",
            "creationTimestamp": "2026-11-15T07:07:06Z",
        },
        "spec": {
            "source": {"workloadEndpoint": {"hostname": "compute-1", **side}},
            "target": {"workloadEndpoint": {"hostname": "compute-2", **side}},
        },
    }
    assert MIGRATION.equals(migration.key, json.dumps(golden).encode(), migration.thing)
    assert json.loads(migration.doc)["spec"] == golden["spec"]


@pytest.mark.parametrize(
    "binding",
    [
        bound(profile=TO_2, vif_type="unbound"),
        bound(profile=TO_2, vif_type="binding_failed"),
    ],
    ids=lambda binding: binding.vif_type,
)
def test_the_source_stays_while_neutron_binds_the_port_again(binding: BindingRow) -> None:
    assert len(translate_port(port(bindings=(binding,)), ROWS, SETTINGS).objects) == 3


@pytest.mark.parametrize(
    "profile",
    [
        '{"migrating_to": null}',
        '{"migrating_to": ""}',
        '{"migrating_to": "compute-1"}',
        '{"migrating_to": 7}',
        '["migrating_to"]',
        "migrating_to",
        "[" * 100_000 + '"migrating_to"',
        '{"os_vif_delegation": true}',
    ],
    ids=lambda profile: profile[:30],
)
def test_a_profile_without_another_host_is_no_migration(profile: str) -> None:
    assert len(translate_port(port(bindings=(bound(profile=profile),)), ROWS, SETTINGS).objects) == 1


def test_a_binding_that_waits_for_its_activation_is_no_migration() -> None:
    waiting = BindingRow("compute-2", "tap", "INACTIVE", TO_2)
    assert len(translate_port(port(bindings=(bound(), waiting)), ROWS, SETTINGS).objects) == 1


def test_after_the_activation_only_the_target_is_left() -> None:
    left: Any = (BindingRow("compute-1", "tap", "INACTIVE", TO_2), bound("compute-2"))
    (target,), _ = translate_port(port(bindings=left), ROWS, SETTINGS)
    assert target.thing.spec.node == "compute-2"


def test_a_target_that_cannot_be_part_of_a_key_is_refused() -> None:
    objects, (bad,) = translate_port(port(bindings=(bound(profile='{"migrating_to": "a/b"}'),)), ROWS, SETTINGS)
    assert objects == ()
    assert bad.reason is BadReason.NOT_IN_CALICO
