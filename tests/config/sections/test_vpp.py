"""What `config check` refuses for VPP: it would refuse it too, forward wrongly, or crash."""

from __future__ import annotations

import pytest

from holdfast.config import ConfigFile, ConfigRejected, Loaded, resolve

GOOD = """\
balancer:
  dataplane: {kind: vpp}
  backends:
    a: {address: 10.0.0.1}
    b: {address: 10.0.0.2, port: 80}
    six: {address: "2001:db8::1"}
  frontends:
    www: {address: 192.0.2.1, port: 80, pools: [{backends: {a: {}, b: {}}}]}
    tls: {address: 192.0.2.1, port: 443, pools: [{backends: {a: {}}}]}
    www6: {address: "2001:db8::80", port: 80, pools: [{backends: {six: {}}}]}
"""


def said(text: str) -> str:
    result = resolve(ConfigFile("f", text.encode()), {})
    return "" if isinstance(result, Loaded) else str(result)


def test_a_good_one_is_taken() -> None:
    assert said(GOOD) == ""


@pytest.mark.parametrize("buckets", [1024, 8388608])
def test_the_bounds_of_the_sticky_buckets_are_taken(buckets: int) -> None:
    assert said(GOOD.replace("{kind: vpp}", f"{{kind: vpp, vpp: {{sticky_buckets: {buckets}}}}}")) == ""


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("port: 443,", "port: 0,", "VPP takes every protocol on a frontend of all ports: write protocol: any"),
        ("port: 443,", "port: 0, protocol: any,", "VPP gives all ports of an address to one of the two"),
        ("port: 443,", "port: 443, encapsulation: l3dsr, dscp: 7,", "is l3dsr with dscp 7, and frontend www of the"),
        ("port: 443,", "port: 443, dscp: 7,", "is for encapsulation: l3dsr only"),
        ('80", port: 80,', '80", port: 80, encapsulation: l3dsr,', "l3dsr is for IPv4 only"),
        ("a: {address: 10.0.0.1}", "a: {address: 10.0.0.1, port: 8080}", "VPP keeps the port of the frontend (80)"),
        ("a: {address: 10.0.0.1}", "a: {address: 10.0.0.2}", "has the address of a, and VPP does not tell ports apart"),
        ("{kind: vpp}", "{kind: vpp, vpp: {table_length: 0}}", "write one of the powers of two 1024"),
        ("{kind: vpp}", "{kind: vpp, vpp: {table_length: 65536}}", "write one of the powers of two 1024"),
        ("{kind: vpp}", "{kind: vpp, vpp: {sticky_buckets: 0}}", "write a power of two from 1024 to 8388608"),
        ("{kind: vpp}", "{kind: vpp, vpp: {sticky_buckets: 512}}", "write a power of two from 1024 to 8388608"),
        ("{kind: vpp}", "{kind: vpp, vpp: {sticky_buckets: 1000}}", "write a power of two from 1024 to 8388608"),
        ("{kind: vpp}", "{kind: vpp, vpp: {sticky_buckets: 16777216}}", "write a power of two from 1024 to 8388608"),
        ("{kind: vpp}", '{kind: vpp, vpp: {source_ipv4: "2001:db8::1"}}', "which is of the other family"),
    ],
)
def test_what_vpp_cannot_do_is_refused(old: str, new: str, sentence: str) -> None:
    assert old in GOOD
    assert sentence in said(GOOD.replace(old, new))


def test_a_pool_larger_than_the_table_is_refused() -> None:
    names = [f"n{number}" for number in range(1025)]
    backends = "".join(
        f"    {name}: {{address: 10.1.{place // 250}.{place % 250}}}\n" for place, name in enumerate(names)
    )
    members = ", ".join(f"{name}: {{}}" for name in names)
    text = GOOD.replace("{kind: vpp}", "{kind: vpp, vpp: {table_length: 1024}}")
    text = text.replace("  backends:\n", f"  backends:\n{backends}", 1).replace(
        "backends: {a: {}, b: {}}", f"backends: {{{members}}}"
    )
    assert "has 1,025 backends in a pool, more than balancer.dataplane.vpp.table_length (1,024)" in said(text)


def test_encapsulation_is_for_vpp() -> None:
    text = GOOD.replace("kind: vpp", "kind: nftables").replace("port: 443,", "port: 443, encapsulation: gre,")
    assert "is for balancer.dataplane.kind: vpp" in said(text)


def test_the_frontend_is_named() -> None:
    assert isinstance(resolve(ConfigFile("f", GOOD.encode()), {}), Loaded)
    refused = resolve(ConfigFile("f", GOOD.replace("port: 443,", "port: 0,").encode()), {})
    assert isinstance(refused, ConfigRejected)
    assert "f:9:11: balancer.frontends.tls.address: VPP takes every protocol" in str(refused)
