"""Any object of any kind, as hypothesis strategies: (name, object) pairs that belong together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from holdfast.config.sections.frontend import Announce, Backend, Frontend, Pool, PoolMember
from holdfast.config.sections.healthcheck import HealthCheck
from holdfast.model.base.region import Region
from holdfast.model.calico.agent_status import AgentStatus
from holdfast.model.calico.cluster import ClusterInformation, ClusterSpec, FelixConfiguration, FelixSpec
from holdfast.model.calico.endpoint import AddressPair, Endpoint, EndpointName, EndpointSpec, QosControls
from holdfast.model.calico.endpoint_status import EndpointState, EndpointStatus, EndpointStatusName
from holdfast.model.calico.host import Bgp, Host, HostAddress, HostSpec
from holdfast.model.calico.migration import Migration
from holdfast.model.calico.policy import (
    HttpMatch,
    IcmpMatch,
    Party,
    Policy,
    PolicyRule,
    PolicySpec,
    RuleMetadata,
    ServiceAccounts,
)
from holdfast.model.calico.resource import Metadata
from holdfast.model.calico.subnet import StaticRoute, Subnet
from holdfast.model.control.decision import Decision
from holdfast.model.control.handover import Handover
from holdfast.model.control.history_request import HistoryAnswer, HistoryRequest
from holdfast.model.control.identity import Identity, LatchedVerdict
from holdfast.model.control.intent import Intent, IntentKind
from holdfast.model.control.leader import Leader
from holdfast.model.control.leader_history import LeaderHistory, LeaderPeriod
from holdfast.model.control.mark import Mark
from holdfast.model.control.restart_request import RestartRequest
from holdfast.model.control.scope import FLEET, Scope, ScopeKind
from holdfast.model.control.server import Server, WorkerHealth
from holdfast.model.control.step_down_request import StepDownRequest
from holdfast.model.fleet.agent_report import AgentReport, GateReport, ObjectProblem
from holdfast.model.fleet.balancer_report import BackendReport, BalancerReport, FrontendReport, PoolReport
from holdfast.model.fleet.census import Census, KeySum
from holdfast.model.fleet.network import Network
from holdfast.model.fleet.prefixes import FleetPrefixes

REGION = Region("ams")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
words = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/"), min_size=1, max_size=12)
parts = words.filter(lambda word: not word.startswith("-") and not word.endswith("-"))
naturals = st.integers(0, 2**63 - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)

ipv4 = st.ip_addresses(v=4).map(str)
ipv6 = st.ip_addresses(v=6).map(str).filter(lambda text: not text.startswith("::ffff:"))
addresses = ipv4 | ipv6
prefixes = st.builds(lambda text: f"{text}/32", ipv4) | st.builds("{}/{}".format, addresses, st.integers(0, 32))
macs = st.binary(min_size=6, max_size=6).map(lambda octets: octets.hex(":"))
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC) | zones)  # noqa: DTZ001


def several(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=3).map(tuple)


def mapping(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts, values, max_size=3)


def maybe(items: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | items


labels = mapping(texts)
created = maybe(st.just("2026-11-15T07:07:06Z"))
endpoint_names = st.builds(EndpointName, parts, st.sampled_from(("openstack", "holdfast")), parts, parts)
qos = st.builds(QosControls, maybe(naturals), maybe(naturals), maybe(naturals), egress_burst=maybe(naturals))


@st.composite
def endpoints(draw: st.DrawFn) -> tuple[EndpointName, Endpoint]:
    name = draw(endpoint_names)
    spec = EndpointSpec(
        node=name.node,
        orchestrator=name.orchestrator,
        workload=name.workload,
        endpoint=name.endpoint,
        interface_name=draw(texts),
        mac=draw(st.just("") | macs),
        ipv4_gateway=draw(st.just("") | ipv4),
        ipv6_gateway=draw(st.just("") | ipv6),
        ip_networks=draw(several(prefixes)),
        allowed_ips=draw(several(prefixes)),
        ip_nats=draw(several(st.builds(AddressPair, addresses, addresses))),
        qos_controls=draw(maybe(qos)),
    )
    endpoint = Endpoint.of(
        REGION, spec, labels=draw(labels), annotations=draw(labels), uid=draw(texts), created=draw(created)
    )
    return name, endpoint


octets = st.integers(0, 255)
ports = st.integers(0, 65_535) | texts
protocols = octets | texts
icmps = st.builds(IcmpMatch, maybe(octets), maybe(octets))
parties = st.builds(
    Party,
    several(prefixes),
    several(prefixes),
    texts,
    texts,
    texts,
    several(ports),
    several(ports),
    maybe(st.builds(ServiceAccounts, several(texts), texts)),
    maybe(labels),
)
rules = st.builds(
    PolicyRule,
    st.sampled_from(("Allow", "Deny", "Log", "Pass")),
    st.sampled_from((None, 4, 6)),
    maybe(protocols),
    maybe(icmps),
    maybe(protocols),
    maybe(icmps),
    maybe(parties),
    maybe(parties),
    maybe(st.builds(HttpMatch, several(texts), several(labels))),
    maybe(st.builds(RuleMetadata, labels)),
)
policy_specs = st.builds(PolicySpec, several(rules), several(rules), texts, maybe(floats), texts, several(texts))
policies = st.builds(lambda name, spec: (name, Policy.of(REGION, name, spec)), words, policy_specs)


def _migration(source: EndpointName, host: str) -> tuple[EndpointName, Migration]:
    migration = Migration.of(REGION, source, host)
    return migration.target, migration


migrations = st.builds(_migration, endpoint_names, parts)

host_specs = st.builds(
    HostSpec,
    several(st.builds(HostAddress, addresses | prefixes, texts)),
    maybe(st.builds(Bgp, st.just("") | prefixes, st.just("") | addresses)),
    st.just("") | ipv4,
    st.just("") | ipv6,
    st.just("") | macs,
    st.just("") | macs,
)
hosts = st.builds(
    lambda name, spec, tags, uid, born: (name, Host.of(name, spec, labels=tags, uid=uid, created=born)),
    words,
    host_specs,
    labels,
    texts,
    created,
)
key_sums = st.builds(KeySum, naturals, naturals)
networks = st.builds(Network, prefixes=st.lists(prefixes, min_size=1, max_size=3).map(tuple), description=maybe(texts))
subnets = st.builds(
    Subnet,
    network_id=texts,
    cidr=prefixes,
    host_routes=several(st.builds(StaticRoute, prefixes, addresses)),
    gateway_ip=maybe(addresses),
    dns_servers=several(addresses),
    ipv6_ra_mode=texts,
)
cluster_specs = st.builds(ClusterSpec, texts, texts, maybe(st.booleans()))
clusters = st.builds(
    lambda name, spec: (name, ClusterInformation(metadata=Metadata(name), spec=spec)), words, cluster_specs
)
felix_specs = st.builds(FelixSpec, maybe(st.booleans()), texts)
felixes = st.builds(
    lambda name, spec: (name, FelixConfiguration(metadata=Metadata(name), spec=spec)), words, felix_specs
)
statuses = st.builds(AgentStatus, maybe(texts), maybe(floats), st.booleans())
status_names = st.builds(EndpointStatusName, words, words, st.builds("{}/{}".format, words, words), words)
reports = st.builds(
    AgentReport,
    version=texts,
    boot_id=texts,
    addresses=several(addresses | prefixes),
    tunnel_macs=several(macs),
    gates=several(st.builds(GateReport, texts, texts, moments, texts, texts)),
    counts=mapping(naturals),
    troubles=several(st.builds(ObjectProblem, texts, st.sampled_from(("failed", "held")), texts, moments)),
    pending_deletes=naturals,
    synced_revision=maybe(naturals),
    clock_skew=maybe(floats),
)
verdicts = st.builds(LatchedVerdict, words, texts, naturals, texts)
identities = st.builds(Identity, words, naturals, texts, texts, st.booleans(), st.none() | verdicts)
marks = st.builds(Mark, naturals, words)
leaders = st.builds(Leader, texts, texts, naturals, texts, texts, maybe(moments))
leaderships = st.builds(
    LeaderHistory, several(st.builds(LeaderPeriod, texts, texts, naturals, moments, maybe(moments), texts))
)
servers = st.builds(
    Server,
    host=texts,
    pid=naturals,
    boot_id=texts,
    pid_namespace=texts,
    version=texts,
    since=moments,
    database=st.booleans(),
    warm=st.booleans(),
    rests=texts,
    pauses=several(texts),
    workers=mapping(st.builds(WorkerHealth, st.booleans(), texts, maybe(moments))),
)
scopes = (
    st.builds(
        Scope,
        st.sampled_from(sorted(set(ScopeKind) - {ScopeKind.FLEET, ScopeKind.MEMBER, ScopeKind.POOL}, key=str)),
        words | st.builds("{}/{}".format, words, words),
    )
    | st.builds(Scope.member, words, words)
    | st.builds(Scope.pool, words, words)
)
unnamed_scopes = st.sampled_from((FLEET, Scope(ScopeKind.SERVER)))
plain_whats = st.sampled_from((IntentKind.PAUSE, IntentKind.DRAIN, IntentKind.DISABLE, IntentKind.ALLOW))
common = {"scope": scopes | unnamed_scopes, "who": texts, "why": texts, "since": moments}
intents = st.builds(Intent, what=plain_whats, until=maybe(moments), revision=naturals, **common) | st.builds(
    Intent, what=st.just(IntentKind.WEIGHT), weight=st.integers(0, 100), **common
)

durations = st.timedeltas(timedelta(0), timedelta(days=3_650))
checks = st.builds(
    HealthCheck,
    type=st.sampled_from(("icmp", "tcp", "http", "https")),
    port=maybe(naturals),
    interval=durations,
    down_interval=maybe(durations),
    rise=naturals,
    source=maybe(addresses),
    status=several(texts),
    body=maybe(texts),
    verify=st.booleans(),
)
backends = st.builds(
    Backend,
    address=maybe(addresses),
    endpoint=maybe(texts),
    host=maybe(texts),
    port=naturals,
    healthcheck=several(texts),
    enabled=st.booleans(),
    weight=naturals,
)
pools = st.builds(Pool, name=maybe(texts), backends=mapping(st.builds(PoolMember, weight=maybe(naturals))))
frontends = st.builds(
    Frontend,
    address=addresses,
    protocol=st.sampled_from(("tcp", "udp", "any")),
    port=naturals,
    pools=several(pools),
    description=maybe(texts),
    flush_on_down=st.booleans(),
    slow_start=durations,
    panic_threshold=naturals,
    announce=maybe(st.builds(Announce, device=texts, withdraw_delay=durations)),
)

decisions = st.builds(Decision, moments, texts, texts, texts, texts, texts, revision=naturals, count=naturals)
backend_reports = st.builds(
    BackendReport,
    name=texts,
    address=texts,
    state=texts,
    configured=naturals,
    weight=maybe(naturals),
    why=texts,
    since=maybe(moments),
)
balancer_reports = st.builds(
    BalancerReport,
    version=texts,
    table=texts,
    configuration=texts,
    health=texts,
    intents=texts,
    frontends=mapping(texts),
    details=mapping(
        st.builds(
            FrontendReport,
            vip=texts,
            pools=several(st.builds(PoolReport, up=naturals, total=naturals, backends=several(backend_reports))),
            active_pool=maybe(naturals),
            panic=st.booleans(),
            paused=texts,
            programmed=st.booleans(),
        )
    ),
    details_left_out=naturals,
)


def _by_own_name(objects: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return objects.map(lambda obj: (obj.name, obj))


SAMPLES: dict[str, st.SearchStrategy[tuple[Any, Any]]] = {
    "host": hosts,
    "endpoint": endpoints(),
    "policy": policies,
    "migration": migrations,
    "subnet": st.tuples(words, subnets),
    "network": st.tuples(words, networks),
    "cluster": clusters,
    "felix-configuration": felixes,
    "frontend": st.tuples(words, frontends),
    "backend": st.tuples(words, backends),
    "health-check": st.tuples(words, checks),
    "balancer": st.tuples(words, balancer_reports),
    "agent-status": st.tuples(words, statuses),
    "last-status": st.tuples(words, statuses),
    "endpoint-status": st.tuples(status_names, st.builds(EndpointStatus, st.sampled_from(EndpointState))),
    "agent": st.tuples(words, reports),
    "leadership": st.tuples(st.just("leadership"), leaderships),
    "handover": st.tuples(st.just("handover"), st.builds(Handover, texts, texts)),
    "restart-request": st.tuples(words, st.builds(RestartRequest, texts, texts, texts, moments)),
    "step-down-request": st.tuples(
        st.just("step-down"), st.builds(StepDownRequest, naturals, texts, texts, texts, moments)
    ),
    "history-request": st.tuples(words, st.builds(HistoryRequest, several(words), maybe(texts), naturals)),
    "history-answer": st.tuples(words, st.builds(HistoryAnswer, several(decisions), naturals)),
    "census": st.tuples(st.just("census"), st.builds(Census, naturals, key_sums, key_sums, key_sums)),
    "host-census": st.tuples(words, st.builds(Census, naturals, key_sums, key_sums, key_sums)),
    "fleet-prefixes": st.tuples(st.just("prefixes"), st.builds(FleetPrefixes, several(prefixes), st.booleans())),
    "identity": st.tuples(st.just("identity"), identities),
    "mark": st.tuples(st.just("mark"), marks),
    "leader": st.tuples(st.just("leader"), leaders),
    "neutron-leader": st.tuples(st.just("neutron-leader"), leaders),
    "server": st.tuples(words, servers),
    "intent": _by_own_name(intents),
}
"""By kind: any name and object of it."""
