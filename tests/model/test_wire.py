"""Golden examples of Calico's and our own wire format: exact keys, exact bytes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.model.base.bad import Bad, BadReason
from holdfast.model.base.kind import Kind
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AGENT_STATUS, LAST_STATUS, AgentStatus, Unclear
from holdfast.model.calico.cluster import (
    CLUSTER,
    FELIX_CONFIGURATION,
    ClusterInformation,
    ClusterSpec,
    FelixConfiguration,
    FelixSpec,
)
from holdfast.model.calico.endpoint import ENDPOINT, AddressPair, Endpoint, EndpointName, EndpointSpec, QosControls
from holdfast.model.calico.endpoint_status import ENDPOINT_STATUS, EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.calico.host import HOST, Bgp, Host, HostAddress, HostSpec
from holdfast.model.calico.migration import MIGRATION, Migration
from holdfast.model.calico.policy import POLICY, IcmpMatch, Party, Policy, PolicyRule, PolicySpec
from holdfast.model.calico.resource import Metadata
from holdfast.model.calico.subnet import SUBNET, StaticRoute, Subnet
from holdfast.model.control.identity import IDENTITY, Identity
from holdfast.model.control.intent import INTENT, Intent, IntentKind
from holdfast.model.control.leader import LEADER, NEUTRON_LEADER, Leader
from holdfast.model.control.mark import MARK, Mark
from holdfast.model.control.scope import Scope, ScopeKind
from holdfast.model.control.server import SERVER, Server, WorkerHealth
from holdfast.model.fleet.agent_report import (
    AGENT_REPORT,
    REPORT_LIMIT,
    TROUBLE_LIMIT,
    AgentReport,
    ObjectProblem,
    fitted,
)
from holdfast.model.fleet.census import CENSUS, HOST_CENSUS, Census, KeySum
from holdfast.model.fleet.prefixes import FLEET_PREFIXES, FleetPrefixes

HERE = Region()
AMS = Region("ams")
DEVICE = "843c1d87-a5c8-4d2e-9d0c-0c1a5d1e9b11"
PORT = "8e80eb60-cae1-4b7e-8a3d-3f6b1c2d4e5f"
NAME = EndpointName("compute-1", "openstack", DEVICE, PORT)
WIRE_NAME = f"compute--1-openstack-{DEVICE.replace('-', '--')}-{PORT.replace('-', '--')}"
RESOURCES = "/calico/resources/v3/projectcalico.org"
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)

SPEC = EndpointSpec(
    orchestrator="openstack",
    workload=DEVICE,
    node="compute-1",
    endpoint=PORT,
    interface_name="tap8e80eb60-ca",
    mac="fa:16:3e:12:34:56",
    ipv4_gateway="10.28.0.1",
    ipv6_gateway="fd5f::1",
    ip_networks=("10.28.0.7/32", "fd5f::8/128"),
    allowed_ips=("10.28.0.99/32",),
    ip_nats=(AddressPair("10.28.0.7", "172.24.4.10"),),
    qos_controls=QosControls(egress_bandwidth=1_000_000, egress_burst=4_294_967_296),
)
VM = Endpoint.of(
    HERE,
    SPEC,
    labels={"sg.projectcalico.org/openstack-a": "default", "projectcalico.org/namespace": "openstack"},
    annotations={"openstack.projectcalico.org/fqdn": "vm1.example.org."},
    uid="5f2c",
    created="2026-11-15T07:07:06Z",
)
VM_KEY = f"{RESOURCES}/workloadendpoints/openstack/{WIRE_NAME}".encode()
VM_VALUE = (
    '{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3",'
    f'"metadata":{{"name":"{WIRE_NAME}","namespace":"openstack",'
    '"creationTimestamp":"2026-11-15T07:07:06Z","uid":"5f2c",'
    '"annotations":{"openstack.projectcalico.org/fqdn":"vm1.example.org."},'
    '"labels":{"projectcalico.org/namespace":"openstack","sg.projectcalico.org/openstack-a":"default"}},'
    f'"spec":{{"orchestrator":"openstack","workload":"{DEVICE}","node":"compute-1","endpoint":"{PORT}",'
    '"interfaceName":"tap8e80eb60-ca","mac":"fa:16:3e:12:34:56","ipv4Gateway":"10.28.0.1","ipv6Gateway":"fd5f::1",'
    '"ipNetworks":["10.28.0.7/32","fd5f::8/128"],"allowedIps":["10.28.0.99/32"],'
    '"ipNATs":[{"internalIP":"10.28.0.7","externalIP":"172.24.4.10"}],'
    '"qosControls":{"egressBandwidth":1000000,"egressBurst":4294967296}}}'
).encode()

RULES = PolicySpec(
    ingress=(
        PolicyRule("Allow", 4, source=Party(selector="has(sg.projectcalico.org/openstack-a)")),
        PolicyRule("Allow", 4, 6, destination=Party(ports=("22:80",)), source=Party(nets=("0.0.0.0/0",))),
        PolicyRule("Allow", 4, "ICMP", IcmpMatch(8, 0)),
    ),
    egress=(PolicyRule("Allow", 6),),
    selector="has(sg.projectcalico.org/openstack-a)",
)
PAUSE = Intent(what=IntentKind.PAUSE, scope=Scope(ScopeKind.HOST, "r12-07"), who="alice", why="rack move", since=NOON)
ALLOW = Intent(
    what=IntentKind.ALLOW,
    scope=Scope(ScopeKind.WORKER, "syncer"),
    revision=9_184_021,
    who="bob",
    why="red is gone",
    since=NOON,
)
SERVING = Server(
    host="ctl-1",
    pid=7,
    boot_id="b",
    pid_namespace="pid:[1]",
    version="0.3.1",
    since=NOON,
    database=True,
    warm=True,
    workers={"syncer": WorkerHealth(True, "ok")},
)

GOLDEN: list[tuple[Kind[Any, Any], Region, Any, Any, bytes, bytes]] = [
    (ENDPOINT, HERE, NAME, VM, VM_KEY, VM_VALUE),
    (
        POLICY,
        HERE,
        "ossg.default.a",
        Policy.of(HERE, "ossg.default.a", RULES),
        f"{RESOURCES}/networkpolicies/openstack/ossg.default.a".encode(),
        (
            b'{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3",'
            b'"metadata":{"name":"ossg.default.a","namespace":"openstack"},"spec":{"ingress":['
            b'{"action":"Allow","ipVersion":4,"source":{"selector":"has(sg.projectcalico.org/openstack-a)"}},'
            b'{"action":"Allow","ipVersion":4,"protocol":6,"destination":{"ports":["22:80"]},"source":{"nets":["0.0.0.0/0"]}},'
            b'{"action":"Allow","ipVersion":4,"protocol":"ICMP","icmp":{"type":8,"code":0}}],'
            b'"egress":[{"action":"Allow","ipVersion":6}],"selector":"has(sg.projectcalico.org/openstack-a)"}}'
        ),
    ),
    (
        MIGRATION,
        AMS,
        EndpointName("c-2", "openstack", "d", "p"),
        Migration.of(AMS, EndpointName("c-1", "openstack", "d", "p"), "c-2"),
        f"{RESOURCES}/livemigrations/openstack-region-ams/c--2-openstack-d-p".encode(),
        (
            b'{"kind":"LiveMigration","apiVersion":"projectcalico.org/v3",'
            b'"metadata":{"name":"c--2-openstack-d-p","namespace":"openstack-region-ams"},'
            b'"spec":{"source":{"workloadEndpoint":{"hostname":"c-1","orchestratorID":"openstack",'
            b'"workloadID":"openstack-region-ams/d","endpointID":"p"}},'
            b'"target":{"workloadEndpoint":{"hostname":"c-2","orchestratorID":"openstack",'
            b'"workloadID":"openstack-region-ams/d","endpointID":"p"}}}}'
        ),
    ),
    (
        HOST,
        HERE,
        "r12-07",
        Host.of(
            "r12-07",
            HostSpec(
                (HostAddress("192.0.2.7", "InternalIP"),),
                Bgp("192.0.2.7/24", "2001:db8::7/64"),
                "10.99.0.7",
                "",
                "66:00:00:00:00:07",
            ),
        ),
        f"{RESOURCES}/nodes/r12-07".encode(),
        (
            b'{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"r12-07"},'
            b'"spec":{"addresses":[{"address":"192.0.2.7","type":"InternalIP"}],'
            b'"bgp":{"ipv4Address":"192.0.2.7/24","ipv6Address":"2001:db8::7/64"},'
            b'"ipv4VXLANTunnelAddr":"10.99.0.7","vxlanTunnelMACAddr":"66:00:00:00:00:07"}}'
        ),
    ),
    (
        SUBNET,
        HERE,
        "s1",
        Subnet(network_id="n1", cidr="10.28.0.0/16", gateway_ip="10.28.0.1", dns_servers=("10.28.0.2",)),
        b"/calico/dhcp/v2/no-region/subnet/s1",
        b'{"network_id":"n1","cidr":"10.28.0.0/16","host_routes":[],"gateway_ip":"10.28.0.1","dns_servers":["10.28.0.2"]}',
    ),
    (
        SUBNET,
        AMS,
        "s2",
        Subnet(network_id="n1", cidr="fd5f::/64", host_routes=(StaticRoute("::/0", "fd5f::1"),), ipv6_ra_mode="slaac"),
        b"/calico/dhcp/v2/region-ams/subnet/s2",
        (
            b'{"network_id":"n1","cidr":"fd5f::/64","host_routes":[{"destination":"::/0","nexthop":"fd5f::1"}],'
            b'"gateway_ip":null,"ipv6_ra_mode":"slaac"}'
        ),
    ),
    (
        CLUSTER,
        HERE,
        "default",
        ClusterInformation(metadata=Metadata("default"), spec=ClusterSpec("0af3", "openstack", True)),
        f"{RESOURCES}/clusterinformations/default".encode(),
        (
            b'{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},'
            b'"spec":{"clusterGUID":"0af3","clusterType":"openstack","datastoreReady":true}}'
        ),
    ),
    (
        FELIX_CONFIGURATION,
        HERE,
        "default",
        FelixConfiguration(metadata=Metadata("default"), spec=FelixSpec(True, "tap")),
        f"{RESOURCES}/felixconfigurations/default".encode(),
        (
            b'{"kind":"FelixConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},'
            b'"spec":{"endpointReportingEnabled":true,"interfacePrefix":"tap"}}'
        ),
    ),
    (
        AGENT_STATUS,
        HERE,
        "compute-1",
        AgentStatus("2026-11-15T07:07:06Z", 12.3, True),
        b"/calico/felix/v2/no-region/host/compute-1/status",
        b'{"time":"2026-11-15T07:07:06Z","uptime":12.3,"first_update":true}',
    ),
    (
        LAST_STATUS,
        AMS,
        "compute-1",
        AgentStatus("2026-11-15T07:07:06Z", 12.3),
        b"/calico/felix/v2/region-ams/host/compute-1/last_reported_status",
        b'{"time":"2026-11-15T07:07:06Z","uptime":12.3,"first_update":false}',
    ),
    (
        ENDPOINT_STATUS,
        HERE,
        EndpointStatusName.of(HERE, NAME),
        EndpointStatus(EndpointState.UP),
        f"/calico/felix/v2/no-region/host/compute-1/workload/openstack/openstack%2f{DEVICE}/endpoint/{PORT}".encode(),
        b'{"status":"up"}',
    ),
    (
        IDENTITY,
        AMS,
        "identity",
        Identity("prod-ams", 3),
        b"/holdfast/v1/region-ams/identity",
        b'{"fleet":"prod-ams","epoch":3}',
    ),
    (
        FLEET_PREFIXES,
        AMS,
        "prefixes",
        FleetPrefixes(("10.28.0.0/16",), bounded=True),
        b"/holdfast/v1/region-ams/fleet/prefixes",
        b'{"prefixes":["10.28.0.0/16"],"bounded":true}',
    ),
    (
        CENSUS,
        AMS,
        "census",
        Census(42, KeySum(2, 7), KeySum(1, 2**63)),
        b"/holdfast/v1/region-ams/fleet/census",
        b'{"revision":42,"hosts":{"count":2,"sum":7},"endpoints":{"count":1,"sum":9223372036854775808}}',
    ),
    (
        HOST_CENSUS,
        AMS,
        "rack-1",
        Census(42, KeySum(1, 7), KeySum(1, 5)),
        b"/holdfast/v1/region-ams/census/rack-1",
        b'{"revision":42,"hosts":{"count":1,"sum":7},"endpoints":{"count":1,"sum":5}}',
    ),
    (
        MARK,
        AMS,
        "mark",
        Mark(42, "5f1d"),
        b"/holdfast/v1/region-ams/mark",
        b'{"number":42,"nonce":"5f1d"}',
    ),
    (
        LEADER,
        HERE,
        "leader",
        Leader("ctl-1", "ctl-1.example", 4711, "b", "pid:[4026531836]", NOON),
        b"/holdfast/v1/no-region/leader",
        (
            b'{"name":"ctl-1","host":"ctl-1.example","pid":4711,"boot_id":"b","pid_namespace":"pid:[4026531836]",'
            b'"since":"2026-11-15T12:00:00Z"}'
        ),
    ),
    (
        NEUTRON_LEADER,
        HERE,
        "neutron-leader",
        Leader("ctl-1", "ctl-1", 4711),
        b"/calico/openstack/v2/no-region/neutron_election",
        b'{"name":"ctl-1","host":"ctl-1","pid":4711}',
    ),
    (
        SERVER,
        HERE,
        "ctl-1",
        SERVING,
        b"/holdfast/v1/no-region/servers/ctl-1",
        (
            b'{"host":"ctl-1","pid":7,"boot_id":"b","pid_namespace":"pid:[1]","version":"0.3.1",'
            b'"since":"2026-11-15T12:00:00Z","database":true,"failed":"","warm":true,"stands":true,'
            b'"rests":"","lag_s":0.0,"pauses":[],"workers":{"syncer":{"healthy":true,"state":"ok"}}}'
        ),
    ),
    (
        AGENT_REPORT,
        HERE,
        "r12-07",
        AgentReport(version="0.3.1", boot_id="b", counts={"ok": 4, "held": 1}, routing="bgp", clock_skew=-0.5),
        b"/holdfast/v1/no-region/agents/r12-07",
        b'{"version":"0.3.1","boot_id":"b","counts":{"held":1,"ok":4},"routing":"bgp","clock_skew":-0.5}',
    ),
    (
        INTENT,
        HERE,
        PAUSE.name,
        PAUSE,
        b"/holdfast/v1/no-region/intents/pause/host/r12-07",
        (
            b'{"what":"pause","scope":{"target":"host","name":"r12-07"},"who":"alice","why":"rack move",'
            b'"since":"2026-11-15T12:00:00Z"}'
        ),
    ),
    (
        INTENT,
        HERE,
        ALLOW.name,
        ALLOW,
        b"/holdfast/v1/no-region/intents/allow/worker/syncer",
        (
            b'{"what":"allow","scope":{"target":"worker","name":"syncer"},"who":"bob","why":"red is gone",'
            b'"since":"2026-11-15T12:00:00Z","revision":9184021}'
        ),
    ),
]


@pytest.mark.parametrize(("kind", "region", "name", "obj", "key", "value"), GOLDEN, ids=[g[0].name for g in GOLDEN])
def test_keys_and_values_are_these_bytes(
    kind: Kind[Any, Any], region: Region, name: Any, obj: Any, key: bytes, value: bytes
) -> None:
    assert kind.key(region, name) == key
    assert kind.parse(key, region) == name
    assert kind.encode(obj) == value
    assert kind.decode(key, value) == obj


def _bad(kind: Kind[Any, Any], key: bytes, value: bytes) -> BadReason:
    decoded = kind.decode(key, value)
    assert isinstance(decoded, Bad), decoded
    return decoded.reason


def _changed(path: str, new: object) -> bytes:
    """The golden endpoint with one field set to something else."""
    document = json.loads(VM_VALUE)
    *parents, field = path.split(".")
    holder = document
    for parent in parents:
        holder = holder[parent]
    holder[field] = new
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("path", "new", "reason"),
    [
        ("kind", "Pod", BadReason.WRONG_KIND),
        ("apiVersion", "projectcalico.org/v4", BadReason.WRONG_KIND),
        ("metadata.name", "another", BadReason.WRONG_NAME),
        ("metadata.namespace", "default", BadReason.WRONG_NAME),
        ("spec.node", "compute-2", BadReason.WRONG_NAME),
        ("spec.mac", "fa:16:3e", BadReason.WRONG_ADDRESS),
        ("spec.ipv4Gateway", "10.28.0.256", BadReason.WRONG_ADDRESS),
        ("spec.ipNetworks", ["10.28.0.7/33"], BadReason.WRONG_ADDRESS),
        ("spec.ipNATs", [{"internalIP": "x", "externalIP": "y"}], BadReason.WRONG_ADDRESS),
        ("spec.ipNetworks", "10.28.0.7/32", BadReason.WRONG_SHAPE),
        ("spec.qosControls", {"egressBandwidth": 10**400}, BadReason.WRONG_SHAPE),
        ("spec.qosControls", {"egressBandwidth": 2**63}, BadReason.WRONG_SHAPE),
        ("spec.orchestrator", "k8s", BadReason.WRONG_SHAPE),
        ("spec", None, BadReason.WRONG_SHAPE),
        ("metadata.uid", "\ud800", BadReason.NOT_JSON),
    ],
)
def test_C39_an_endpoint_that_contradicts_itself_is_bad(path: str, new: object, reason: BadReason) -> None:
    assert _bad(ENDPOINT, VM_KEY, _changed(path, new)) is reason


def test_addresses_are_compared_and_written_in_their_canonical_form() -> None:
    value = _changed("spec.ipNetworks", ["10.28.0.7", "FD5F:0:0::8/128"])
    assert ENDPOINT.decode(VM_KEY, value) == VM
    assert ENDPOINT.equals(VM_KEY, value, VM)
    assert ENDPOINT.encode(VM, over=value) == VM_VALUE


def test_null_means_absent_as_it_does_in_go() -> None:
    document = json.loads(VM_VALUE)
    document["metadata"]["labels"] = document["spec"]["ipNetworks"] = document["spec"]["mac"] = None
    decoded = ENDPOINT.decode(VM_KEY, json.dumps(document).encode())
    assert isinstance(decoded, Endpoint)
    assert (decoded.metadata.labels, decoded.spec.ip_networks, decoded.spec.mac) == ({}, (), "")


def test_a_rewrite_keeps_uid_and_creation_time_and_replaces_labels_and_lists() -> None:
    fresh = Endpoint.of(
        HERE,
        EndpointSpec(orchestrator="openstack", workload=DEVICE, node="compute-1", endpoint=PORT),
        labels={"only": "this"},
        uid="new",
    )
    decoded = ENDPOINT.decode(VM_KEY, ENDPOINT.encode(fresh, over=VM_VALUE))
    assert isinstance(decoded, Endpoint)
    assert (decoded.metadata.uid, decoded.metadata.creation_timestamp) == ("5f2c", "2026-11-15T07:07:06Z")
    assert decoded.metadata.labels == {"only": "this"}
    assert decoded.metadata.annotations == {}
    assert decoded.spec == fresh.spec


def test_unknown_fields_are_kept_byte_for_byte() -> None:
    value = VM_VALUE[:-1] + b',"zz":{ "n": 1e400, "big": ' + b"9" * 400 + b"}}"
    assert ENDPOINT.encode(VM, over=value) == value


def test_a_removed_field_is_not_restored_from_the_old_value() -> None:
    plain = Endpoint.of(HERE, EndpointSpec(orchestrator="openstack", workload=DEVICE, node="compute-1", endpoint=PORT))
    assert b"qosControls" not in ENDPOINT.encode(plain, over=VM_VALUE)


def test_the_value_of_another_object_is_not_carried_over() -> None:
    other = Endpoint.of(HERE, EndpointSpec(orchestrator="openstack", workload="w", node="n", endpoint="e"))
    assert ENDPOINT.encode(other, over=VM_VALUE) == ENDPOINT.encode(other)


def test_a_different_value_needs_a_rewrite() -> None:
    assert not ENDPOINT.equals(VM_KEY, _changed("spec.mac", "fa:16:3e:00:00:00"), VM)
    assert not ENDPOINT.equals(VM_KEY, b"rubbish", VM)


def test_a_new_uid_alone_is_no_reason_to_rewrite() -> None:
    again = Endpoint.of(HERE, SPEC, labels=VM.metadata.labels, annotations=VM.metadata.annotations, uid="other")
    assert ENDPOINT.equals(VM_KEY, VM_VALUE, again)


def test_a_migration_with_another_uid_is_a_new_one_and_one_without_a_uid_is_the_same() -> None:
    move = Migration.of(HERE, NAME, "compute-2")
    key = MIGRATION.key(HERE, move.target)
    first, second = (replace(move, metadata=replace(move.metadata, uid=uid)) for uid in ("one", "two"))
    stored = MIGRATION.encode(first)
    assert MIGRATION.equals(key, stored, move)
    assert not MIGRATION.equals(key, stored, second)
    assert MIGRATION.encode(second, over=stored) == MIGRATION.encode(second)


def test_kinds_under_felix_prefix_skip_each_others_keys() -> None:
    keys = {kind: key for kind, _, _, _, key, _ in GOLDEN if b"/felix/" in key}
    for kind in (AGENT_STATUS, ENDPOINT_STATUS):
        for other, key in keys.items():
            parsed = kind.parse(key, Region() if b"no-region" in key else AMS)
            assert isinstance(parsed, Bad) == (other is not kind)
            assert other is kind or (isinstance(parsed, Bad) and parsed.reason is BadReason.OTHER_KIND)


@pytest.mark.parametrize(
    "rest",
    [b"x", b"a-b-c-d", b"a-openstack-b", b"a---openstack-b-c", b"a-openstack-b-c/d", b"\xff", b"", b"a-openstack--c"],
)
def test_a_strange_endpoint_key_is_bad(rest: bytes) -> None:
    parsed = ENDPOINT.parse(ENDPOINT.prefix(HERE) + rest, HERE)
    assert isinstance(parsed, Bad)
    assert parsed.reason is BadReason.STRANGE_KEY


def test_a_key_of_another_region_belongs_to_another_kind() -> None:
    parsed = ENDPOINT.parse(VM_KEY, AMS)
    assert isinstance(parsed, Bad)
    assert parsed.reason is BadReason.OTHER_KIND


@pytest.mark.parametrize(
    ("time", "meaning"),
    [
        ("2026-11-15T12:00:00Z", NOON),
        ("2026-11-15T14:00:00+02:00", NOON),
        ("2026-11-15T12:00:00", NOON),
        ("2026-11-15 12:00:00.000000000Z", NOON),
        (None, Unclear.MISSING),
        ("", Unclear.UNPARSEABLE),
        ("2026-11-15", Unclear.UNPARSEABLE),
        ("yesterday", Unclear.UNPARSEABLE),
        ("0001-01-01T00:00:00+14:00", Unclear.UNPARSEABLE),
    ],
)
def test_C7_the_time_of_a_report_is_known_or_its_absence_has_a_reason(
    time: str | None, meaning: datetime | Unclear
) -> None:
    assert AgentStatus(time).reported == meaning


def test_a_report_without_any_field_is_valid() -> None:
    assert AGENT_STATUS.decode(b"/k", b"{}") == AgentStatus()


def test_the_leader_value_of_networking_calico_is_read() -> None:
    key = NEUTRON_LEADER.key(HERE, "neutron-leader")
    assert NEUTRON_LEADER.decode(key, b"ctl-1.example:4711") == Leader("ctl-1.example", "ctl-1.example", 4711)
    assert _bad(NEUTRON_LEADER, key, b"gone fishing") is BadReason.NOT_JSON
    assert LEADER.decode(key, b"ctl-1.example:4711") == Leader("ctl-1.example", "ctl-1.example", 4711)


def test_C33_a_server_is_able_when_database_and_workers_are() -> None:
    assert SERVING.able
    sick = {"syncer": WorkerHealth(False, "crash-looping")}
    assert not Server(**{**_fields(SERVING), "workers": sick}).able
    assert not Server(**{**_fields(SERVING), "database": False}).able


def _fields(server: Server) -> dict[str, Any]:
    return {name: getattr(server, name) for name in server.__struct_fields__}


def test_an_intent_holds_until_its_time() -> None:
    brief = Intent(what=IntentKind.DRAIN, scope=Scope(ScopeKind.HOST, "h"), who="a", why="b", since=NOON, until=NOON)
    assert not brief.holds(NOON)
    assert PAUSE.holds(NOON.replace(year=2100))


def test_a_weight_belongs_to_a_weight_intent_alone() -> None:
    with pytest.raises(ValueError, match="no other kind has one"):
        Intent(what=IntentKind.PAUSE, scope=Scope(ScopeKind.BACKEND, "web/b1"), who="a", why="b", since=NOON, weight=3)


def test_an_intent_at_the_key_of_another_is_bad() -> None:
    assert (
        _bad(INTENT, b"/holdfast/v1/no-region/intents/pause/host/r12-08", INTENT.encode(PAUSE)) is BadReason.WRONG_NAME
    )


def test_a_scope_that_needs_a_name_has_one() -> None:
    with pytest.raises(ValueError, match="a frontend needs a name here"):
        Scope(ScopeKind.FRONTEND)


def test_an_allow_covers_what_the_operator_saw_and_nothing_later() -> None:
    assert ALLOW.covers(9_184_021, NOON)
    assert not ALLOW.covers(9_184_022, NOON)


def test_there_is_one_fleet() -> None:
    with pytest.raises(ValueError, match="it has no name here"):
        Scope(ScopeKind.FLEET, "prod")


def test_a_report_is_cut_to_its_limits_and_counts_what_was_dropped() -> None:
    troubles = tuple(ObjectProblem(f"10.0.{i // 256}.{i % 256}/32", "held", "brake " * 30, NOON) for i in range(300))
    cut = fitted(AgentReport(version="1", boot_id="b", troubles=troubles))
    assert 0 < len(cut.troubles) <= TROUBLE_LIMIT
    assert len(cut.troubles) + cut.troubles_left_out == 300
    assert len(AGENT_REPORT.encode(cut)) <= REPORT_LIMIT
    assert cut.troubles == troubles[: len(cut.troubles)]


def test_a_hosts_underlay_address_is_found_per_family() -> None:
    host = Host.of("h", HostSpec((HostAddress("2001:db8::9/64"),), Bgp("192.0.2.9/24")))
    assert (host.underlay(4), host.underlay(6)) == ("192.0.2.9", "2001:db8::9")
    assert Host.of("h", HostSpec()).underlay(4) is None
