"""Each benchmark runs at a tiny size and yields exactly the keys that were agreed upon."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from bench import frame

SIZES: dict[str, dict[str, Any]] = {
    "store": {"keys": 300},
    "fanout": {"watchers": 3, "changes": 4, "endpoints": 0},
    "maglev": {"size": 1021, "backends": 20},
    "nodes": {"nodes": 300},
    "status": {"hosts": 5, "endpoints": 200},
    "openstack": {"ports": 200},
    "routes": {"nodes": 50},
    "api": {"clients": 2, "seconds": 0.5},
    "auth": {"logins": 4, "tokens": 2, "calls": 40},
    "probes": {"targets": 20, "interval": 0.1, "seconds": 2},
    "sim": {"seeds": 1},
}
KEYS: dict[str, list[str]] = {
    "store": [
        "range_keys_per_s",
        "range_rss_growth_mb",
        "decode_keys_per_s",
        "decode_cpu_us_per_key",
        "loop_block_max_ms",
        "write_keys_per_s",
        "write_cpu_us_per_key",
        "watch_events_per_s",
        "watch_batched_cpu_us_per_event",
        "watch_single_cpu_us_per_event",
        "bare_range_keys_per_s",
        "bare_write_keys_per_s",
    ],
    "fanout": [
        "etcd_cpu_us_per_delivery",
        "etcd_cpu_us_per_change",
        "etcd_cpu_us_per_change_alone",
        "etcd_rest_us_per_s",
        "delivery_p99_ms",
        "relist_etcd_cpu_s",
        "agents_supported",
        "agent_rss_mb",
    ],
    "maglev": [
        "build_cpu_ms",
        "transition_cpu_ms",
        "transition_half_cpu_ms",
        "transition_innocent_pct",
        "delta_buckets",
        "delta_commit_cpu_ms",
        "full_commit_cpu_ms",
        "disruption_pct",
        "disruption_max_pct",
        "evenness_max",
    ],
    "openstack": ["resync_cpu_s", "resync_s", "audit_cpu_s", "audit_s", "read_s", "read_cpu_s"],
    "nodes": [
        "journal_us_per_event",
        "event_stall_max_ms",
        "restore_cpu_s",
        "open_cpu_s",
        "prune_cpu_s",
        "journal_mb",
        "rss_mb",
    ],
    "routes": ["program_cpu_us_per_object", "program_s", "dump_diff_cpu_ms", "ip_batch_cpu_us_per_object"],
    "status": [
        "snapshot_s",
        "snapshot_cpu_s",
        "events_per_s",
        "cpu_us_per_event",
        "cpu_us_per_event_batched",
        "bare_cpu_us_per_event",
        "takeover_drain_s",
        "takeover_writes",
        "backlog_peak",
    ],
    "api": ["get_per_s", "p99_ms", "sse_clients", "sse_lag_p99_ms"],
    "auth": [
        "login_cpu_ms",
        "login_cpu_ms_cost_4",
        "fleet_login_cpu_s",
        "fleet_login_cpu_s_cost_4",
        "simple_call_cpu_us",
        "jwt_call_cpu_us",
        "simple_refused_restart",
        "jwt_refused_restart",
        "simple_refused_user",
        "jwt_refused_user",
    ],
    "probes": [
        "probes_per_s",
        "cpu_us_per_probe",
        "cpu_pct",
        "lateness_p50_ms",
        "lateness_p99_ms",
        "haproxy_cpu_us_per_probe",
    ],
    "sim": ["seeds_per_s_per_core", "simulated_s_per_seed", "faults_per_seed"],
}
DIFFERENCES = {"etcd_cpu_us_per_change_alone"}
"""Of two measurements: below 0 where a run is so short that noise decides."""
MAY_BE_ZERO = {
    "range_rss_growth_mb",
    "loop_block_max_ms",
    "relist_etcd_cpu_s",
    "haproxy_cpu_us_per_probe",
    "transition_innocent_pct",
    "simple_refused_restart",
    "jwt_refused_restart",
    "simple_refused_user",
    "jwt_refused_user",
    "login_cpu_ms_cost_4",
    "fleet_login_cpu_s_cost_4",
}
"""Too small to be seen at a tiny size, or 0 where all is well."""
MAY_BE_NONE = {"haproxy_cpu_us_per_probe", "delta_commit_cpu_ms", "full_commit_cpu_ms", "agent_rss_mb"}
"""Measured only where the peer is installed, where there is a dataplane, or where it is asked for."""
IN_NAMESPACES = {"routes"}
"""These program a kernel."""


def measured(name: str) -> dict[str, Any]:
    benchmark = frame.load(name)
    return msgspec.structs.asdict(benchmark.measure(benchmark.options(**SIZES[name])))


@pytest.mark.parametrize("name", sorted(SIZES))
def test_a_benchmark_yields_exactly_its_keys(name: str, etcd_installed: None, request: pytest.FixtureRequest) -> None:
    if name in IN_NAMESPACES:
        request.getfixturevalue("namespaces")  # skips where none can be made; a benchmark makes its own
    figures = measured(name)
    assert list(figures) == KEYS[name]
    for key, value in figures.items():
        if value is None and key in MAY_BE_NONE:
            continue
        if key in DIFFERENCES:
            assert math.isfinite(value), key
            continue
        assert value >= 0 if key in MAY_BE_ZERO else value > 0, key
